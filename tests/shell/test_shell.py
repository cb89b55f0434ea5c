"""What shells and manual pages know of the command is what `--help` says of it."""

import re
import shutil
import subprocess

import pytest

from support.command import USAGE, answer, turbidite
from support.tools import require


def commands() -> list[str]:
    """The commands that `--help` lists."""
    listed = turbidite("--help").stdout.split("Commands:")[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z]+)", listed, re.MULTILINE)


def options(*command: str) -> set[str]:
    """The long options that the help of a command lists."""
    return set(re.findall(r"^\s+(?:-\w, )?(--[a-z-]+)", turbidite(*command, "--help").stdout, re.MULTILINE))


def completed(tmp_path, *words: str) -> list[str]:
    """What a real bash, which has read the script, proposes for the last of these words."""
    script = tmp_path / "completions.bash"
    script.write_text(turbidite("completions", "bash").stdout)
    line = " ".join(["turbidite", *words])
    program = f"""
        set -eu
        source {script}
        spec=$(complete -p turbidite)
        function=$(sed -E 's/.*-F ([^ ]+).*/\\1/' <<<"$spec")
        COMP_WORDS=(turbidite "$@"); COMP_CWORD=$#; COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; COMPREPLY=()
        previous=${{COMP_WORDS[COMP_CWORD - 1]}}
        "$function" turbidite "${{COMP_WORDS[COMP_CWORD]}}" "$previous" || true
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "--norc", "-c", program, "bash", *words], capture_output=True, text=True, check=True)
    assert not done.stderr, done.stderr
    return done.stdout.split()


def test_bash_completes_commands_options_and_values(tmp_path):
    assert set(commands()) >= {"ingest", "query", "tracks", "completions", "man"}
    assert set(commands()) <= set(completed(tmp_path, ""))
    assert completed(tmp_path, "tr") == ["tracks", "truncate"]
    for command in commands():
        expected = options(command)
        assert "--json" in expected
        assert expected <= set(completed(tmp_path, command, "--")), command
    assert completed(tmp_path, "ingest", "--der") == ["--derive"]
    assert completed(tmp_path, "ingest", "--if-exists", "") == ["error", "replace", "skip"]
    assert completed(tmp_path, "completions", "fi") == ["fish"]
    (tmp_path / "dumps-of-a-run").mkdir()
    assert completed(tmp_path, "ingest", "--out", f"{tmp_path}/dumps") == [f"{tmp_path}/dumps-of-a-run"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "elvish", "powershell"])
def test_every_shell_gets_every_option(shell):
    script = turbidite("completions", shell).stdout
    for command in commands():
        assert command in script
        for option in options(command):
            # fish is told the name without dashes.
            assert option in script or f"-l {option[2:]}" in script, option
    told = answer("completions", shell)
    assert told["shell"] == shell and told["script"].strip() == script.strip()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_read_it(shell):
    require(shell)
    script = turbidite("completions", shell).stdout
    checked = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
    assert checked.returncode == 0 and not checked.stderr, checked.stderr


# As the tests are collected the command may not be there yet; that these are all is a test of its own.
NAMES = ["ingest", "query", "get", "compact", "index", "tracks", "stats", "hist", "quantiles", "report", "verify", "inspect", "salvage", "truncate"]
NAMES += ["aggregate", "simulate", "completions", "man"]


def test_no_command_is_forgotten_here():
    assert sorted(NAMES) == sorted(commands())


def plain(page: str) -> str:
    """The text of a page by whatever renders pages here; where nothing does, by taking the marks away."""
    for renderer in (["man", "-l", "-"], ["mandoc"], ["groff", "-man", "-Tutf8", "-ww"]):
        if shutil.which(renderer[0]):
            done = subprocess.run(renderer, input=page, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", "MANWIDTH": "200", "LANG": "C.UTF-8"})
            if done.returncode == 0 and done.stdout.strip():
                assert not done.stderr, done.stderr
                text = re.sub(r".\x08|\x1b\[[0-9;]*m", "", done.stdout)
                break
    else:
        text = re.sub(r"\\f[BIRP]|\\&", "", page)
    return text.replace("\\-", "-").replace("‐", "-").replace("−", "-").replace("\u2011", "-")


@pytest.mark.parametrize("command", ["", *NAMES])
def test_manual_pages_render_and_name_every_option(command):
    page = turbidite("man", *filter(None, [command])).stdout
    # The structure that every page has, whatever renders it.
    assert re.search(r'^\.TH "?turbidite', page, re.MULTILINE), page[:300]
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"):
        assert re.search(rf'^\.SH "?{section}', page, re.MULTILINE), section
    for option, described in re.findall(r"^\.TP\n(.*)\n(.*)", page, re.MULTILINE):
        assert described.strip(), f"{option} without a description"
    text = plain(page)
    title = f"turbidite-{command}" if command else "turbidite"
    assert title.upper() in text.upper()
    for option in options(*filter(None, [command])):
        assert option in text, option
    if not command:
        for name in commands():
            assert f"turbidite-{name}(1)" in text, name


def test_pages_of_commands_that_are_not_there():
    done = turbidite("man", "nothing", expect=USAGE)
    assert "there is no command 'nothing'; the commands are ingest, query" in done.stderr
    assert turbidite("completions", "cmd", expect=USAGE).stderr
    assert answer("man", "query")["command"] == "query"
