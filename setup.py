"""The one part of kdns that is compiled, for each CPython from 3.11 on. Without a compiler kdns works without it."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "kdns.dnsserver.io.burst._burst",
            ["kdns/dnsserver/io/burst/_burst.c"],
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
