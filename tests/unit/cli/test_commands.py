"""The table of commands, and that help imports none of them."""

import os
import platform
import re
import shlex
import ssl
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml
from click.shell_completion import ShellComplete
from click.testing import CliRunner

import kdns
from kdns.cli.main import COMMANDS, main
from kdns.controlplane.schema.schema import KUBERNETES_VERSION
from kdns.dnsserver.io.burst.event_loop import is_compiled
from kdns.runtime.http.zpages import EMULATED


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_has_the_first_sentence_of_each_command(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert " ".join((command.help or "").split("\n\n")[0].split()).startswith(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_commands_help_have_its_options(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    examples = re.findall(rf"kdns {name}([^|>)\n]*)", command.epilog or "")
    assert examples
    assert max(map(len, (command.epilog or "").splitlines())) < 80
    for example in examples:
        command.make_context(name, shlex.split(example))


@pytest.mark.parametrize(
    ("line", "first"),
    [
        ("kdns u", "up"),
        ("kdns --log-l", "--log-level"),
        ("kdns up --proxy-mode n", "nftables"),
        ("kdns render --proxy-mode x", ""),
        ("kdns proxy --proxy-mode u", "userspace"),
        ("kdns proxy --vmod", ""),
        ("kdns trace --outp", "--output"),
    ],
)
def test_what_a_shell_completes(line: str, first: str) -> None:
    *words, begun = line.split()[1:]
    items = ShellComplete(main, {}, "kdns", "_KDNS_COMPLETE").get_completions(words, begun)
    assert [item.value for item in items][:1] == ([first] if first else [])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    page = (Path(__file__).parents[3] / "docs/shell.md").read_text(encoding="utf-8")
    assert f"kdns completion {shell}" in page
    result = CliRunner().invoke(main, ["completion", shell])
    assert (result.exit_code, f"_KDNS_COMPLETE={shell}_complete" in result.stdout) == (0, True)
    assert 'string split ","' not in result.stdout  # descriptions have commas


def test_bash_completes_commands() -> None:
    script = (
        'eval "$(kdns completion bash)"; COMP_WORDS=(kdns ver); COMP_CWORD=1\n'
        "_kdns_completion kdns; echo ${COMPREPLY[@]}"
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert (done.stdout, done.stderr) == ("version\n", "")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("up -conf Corefile", "No such option '-conf': `kdns serve` has it."),
        ("up -n default", "No such option '-n': `kdns env`, `kdns explain` and `kdns trace` have it."),
        ("--data x up", "write it after the command, as in `kdns COMMAND --data …`; `kdns up` has it."),
        ("serve --log-format json", "write it before the command, as in `kdns --log-format … serve`."),
        ("up --dna x", "No such option '--dna'. (Did you mean one of: '--api', '--data', '--dns'?)"),
        ("render examples/", "Got unexpected argument 'examples/': expected --manifests PATH for files."),
        ("serve Corefile", "Got unexpected argument 'Corefile': expected --conf FILE for the Corefile."),
        ("version x", "Got unexpected argument 'x': expected options only."),
        ("upp", "No such command 'upp': did you mean `kdns up`?"),
        ("help serve", "No such command 'help': expected `kdns serve --help`"),
        ("apply", f"No such command 'apply': expected {', '.join(sorted(COMMANDS))}"),
    ],
)
def test_a_word_that_nothing_takes_says_what_was_wanted(line: str, says: str) -> None:
    result = CliRunner().invoke(main, line.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def options_of(command: click.Command) -> set[str]:
    return {
        each for option in command.params for each in (*option.opts, *option.secondary_opts) if re.match("--|-.$", each)
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_of_another_command_is_never_just_missing(name: str) -> None:
    commands = {each: main.get_command(click.Context(main), each) for each in COMMANDS}
    options = {each: options_of(command) for each, command in commands.items() if command}
    for option in sorted(set().union(*options.values()) - options[name]):
        said = CliRunner().invoke(main, [name, option]).stderr
        assert f"No such option {option!r}: " in said, said


@pytest.mark.parametrize("form", ["text", "json", "yaml"])
def test_the_versions(form: str) -> None:
    result = CliRunner().invoke(main, ["version", "-o", form])
    assert (result.exit_code, result.stderr) == (0, "")
    found = yaml.safe_load(result.stdout.replace(" ", ": ") if form == "text" else result.stdout)
    assert {name.lower(): text for name, text in found.items()} == {
        "kdns": kdns.__version__,
        "python": platform.python_version(),
        "kubernetes": KUBERNETES_VERSION,
        "udp": "compiled" if is_compiled() else "interpreted",
    }


def test_closed_standard_streams_are_dev_null() -> None:
    command = f"exec {sys.executable} -m kdns --log-format text version <&- 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "kdns")


@pytest.mark.parametrize(("line", "unbuffered"), [("version", ""), ("up --help", "1"), ("check none", "")])
def test_a_full_disk_is_one_line_and_a_status(line: str, unbuffered: str) -> None:
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-m", "kdns", *line.split()]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, check=False)
        lost = subprocess.run(command, stdout=full, stderr=full, env=environment, check=False)
    assert done.stderr == "Error: standard output: cannot be written: No space left on device\n"
    assert (done.returncode, lost.returncode) == (1, 1)


def test_there_is_no_other_command() -> None:
    assert main.get_command(click.Context(main), "main") is None


def test_a_start_reads_no_authorities_of_the_system() -> None:
    """aiohttp reads them twice, for contexts that kdns does not use. Those that are made later have them."""
    program = (
        "import ssl, sys, click\n"
        "from kdns.cli.main import main\n"
        "main.get_command(click.Context(main), 'serve')\n"
        "from aiohttp import connector\n"
        "unused = connector._SSL_CONTEXT_VERIFIED, connector._SSL_CONTEXT_UNVERIFIED\n"
        "assert [each.cert_store_stats()['x509'] for each in unused] == [0, 0]\n"
        "assert unused[0].verify_mode == ssl.CERT_REQUIRED\n"
        "print(ssl.create_default_context().cert_store_stats()['x509'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) == ssl.create_default_context().cert_store_stats()["x509"]


def test_help_imports_no_command() -> None:
    program = (
        "import sys\n"
        "from kdns.cli.main import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "heavy = {'aiohttp', 'kubernetes', 'msgspec', 'yaml'} & sys.modules.keys()\n"
        "sys.exit(str(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"  {name} " in done.stdout for name in COMMANDS)


def test_the_pages_of_the_proxy_name_the_release_of_the_schema() -> None:
    assert KUBERNETES_VERSION.rpartition(".")[0] == EMULATED
