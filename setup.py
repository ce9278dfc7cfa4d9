"""What pyproject.toml cannot say: the compiled part, and the pages of `kdns docs` in the package.

Without a compiler kdns works without the compiled part, and KDNS_PURE=1 makes a wheel for any machine. It is built once
for each CPython from 3.11 on.
"""

import os
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

PAGES = ("docs/*.md", "docs/*/*.md", "deploy/README.md", "*.md")
"""The files that become kdns/pages."""


class BuildWithPages(build_py):
    """Copies the pages beside the modules."""

    def run(self) -> None:
        """Builds the modules, then copies the pages."""
        super().run()
        for pattern in PAGES:
            for page in Path().glob(pattern):
                target = Path(self.build_lib, "kdns", "pages", page)
                self.mkpath(str(target.parent))
                self.copy_file(str(page), str(target))


setup(
    cmdclass={"build_py": BuildWithPages},
    ext_modules=[]
    if os.environ.get("KDNS_PURE")
    else [
        Extension(
            "kdns.dnsserver.io.burst._burst",
            ["kdns/dnsserver/io/burst/_burst.c"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
