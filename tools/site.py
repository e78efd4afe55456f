"""Build the published site: the page of the matrix as its home, a page for each fact people search for, and the docs.

usage: python -m tools.site DIR [--url https://site.example/]

Facts become Markdown, in English and Chinese, and mkdocs with its material theme makes a site of that and of the
repository's own Markdown files. ``tools/site.yml`` holds the settings of both.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from provision import __version__
from provision.generate.page import render_page
from provision.matrix.load import Matrix
from provision.matrix.query import find_first_branch, serves
from provision.versions import is_prefix_of, parse

# Run as a module, this has the root on its path and not its own folder.
sys.path.insert(0, str(Path(__file__).resolve().parent))
from docs import sentence, table

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = Path(__file__).with_name("site.yml")
LANGUAGES = ("en", "zh")
PLAIN_TREES = ("compat", "docs", "molecule", "playbooks", "tests")
PLAIN_PAGES = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
# Long lists and what only maintainers read: the pages of the facts say it one by one.
UNSEARCHED = (
    *("CHANGELOG", "CONTRIBUTING", "compat", "docs/articles", "docs/extras", "docs/facts", "docs/gpu"),
    *("docs/installs", "docs/measurements", "docs/roles", "docs/runbooks", "docs/stacks", "docs/xids"),
    *("molecule", "playbooks/roles", "tests"),
)
SEARCHED_LINES = 4
"""How many lines of an example can be searched."""
_NOT_SEARCHED = "---\nsearch: { exclude: true }\n---\n\n"
_HOME = "start.md"

# What the pages of facts say, in each language. What the facts themselves say is English.
_WORDS: dict[str, tuple[str, str]] = {
    "torch": ("PyTorch", "PyTorch"),
    "tensorflow": ("TensorFlow", "TensorFlow"),
    "jax": ("JAX", "JAX"),
    "cuda": ("CUDA", "CUDA"),
    "driver": ("NVIDIA driver", "NVIDIA 驱动"),
    "gpu": ("GPUs", "GPU"),
    "xid": ("Xid errors", "Xid 错误"),
    "check": ("Checks", "检查"),
    "diagnosis": ("Diagnoses", "诊断"),
    "Python": ("Python", "Python"),
    "property": ("property", "属性"),
    "value": ("value", "值"),
    "released": ("released", "发布日期"),
    "build": ("build", "构建"),
    "driver from": ("driver", "驱动"),
    "gpu code": ("GPU code", "GPU 代码"),
    "name": ("name", "名称"),
    "meaning": ("meaning", "含义"),
    "severity": ("severity", "严重程度"),
    "capability": ("compute capability", "计算能力"),
    "architecture": ("architecture", "架构"),
    "memory": ("memory", "显存"),
    "bandwidth": ("memory bandwidth", "显存带宽"),
    "first driver": ("first driver branch", "最早的驱动分支"),
    "last driver": ("last driver branch", "最后的驱动分支"),
    "first cuda": ("first CUDA", "最早的 CUDA"),
    "last cuda": ("last CUDA", "最后的 CUDA"),
    "end": ("end of life", "停止支持"),
    "last release": ("newest known release", "已知最新版本"),
    "max cuda": ("newest CUDA without forward compatibility", "无需向前兼容包的最新 CUDA"),
    "minimum driver": ("lowest driver", "最低驱动版本"),
    "gcc": ("newest GCC", "支持的最新 GCC"),
    "unknown": ("unknown", "未知"),
    "goes with": ("goes with", "配套版本"),
    "try": ("Try it", "试一试"),
    "sources": ("Sources", "来源"),
    "builds": ("Builds", "构建列表"),
    "frameworks": ("Frameworks built for it", "为其构建的框架"),
    "runs": ("Builds with code for it", "含有其代码的构建"),
    "cause": ("Cause", "原因"),
    "fix": ("Fix", "修复方法"),
    "what to do": ("What to do", "处理方法"),
    "seen": ("Which checks it explains", "可解释的检查"),
    "facts of": ("Facts of", "事实日期："),
    "home": ("Matrix", "兼容矩阵"),
    "docs": ("Documentation", "文档"),
    "start": ("Start", "入门"),
    "rules": ("Rules of provision check", "provision check 的规则"),
}
_Say = Callable[[str], str]


def fact_pages(matrix: Matrix, language: str) -> dict[str, str]:
    """Return path → Markdown of every page that the facts alone decide.

    Args:
        matrix: The facts.
        language: One of :data:`LANGUAGES`. What has much text of the facts is written in English alone.
    """

    def say(key: str) -> str:
        return _WORDS[key][LANGUAGES.index(language)]

    pages: dict[str, str] = {}
    sections: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    writers: list[Callable[[Matrix, _Say], Iterable[_Page]]] = [_torch, _tensorflow, _jax, _cuda, _drivers, _gpus]
    if language == "en":
        writers += [_xids, _checks, _diagnoses]
    for writer in writers:
        for page in writer(matrix, say):
            pages[f"{page.section}/{page.id}.md"] = page.text(matrix, say)
            sections[page.section].append((f"[{_cell(page.title)}]({page.id}.md)", page.summary))
    for section, rows in sections.items():
        heading = f"---\ndescription: {_quoted(say(section))}\n---\n\n# {say(section)}\n\n"
        pages[f"{section}/index.md"] = heading + table((say("name"), say("meaning")), rows)
    return pages


class _Page:
    """One fact as a page: what it is, a table of what it goes with, commands to try, sources."""

    def __init__(self, section: str, name: str, title: str, summary: str) -> None:
        # A name may hold what a path cannot: `2.1.2+cu118`, `RTX 4090`.
        self.section, self.id, self.title, self.summary = section, re.sub(r"[^\w.-]", "-", name), title, summary
        self.parts: list[str] = []
        self.sources: set[str] = set()

    def rely(self, *facts: Any) -> None:
        """Count facts among those that the page rests on."""
        for fact in facts:
            self.sources.update(fact.source)

    def values(self, say: _Say, rows: Iterable[tuple[str, object]]) -> None:
        """Add a table of single values; what nobody states is left out."""
        known = [(say(key), _cell(str(value))) for key, value in rows if value not in (None, "", ())]
        self.parts.append(table((say("property"), say("value")), known))

    def add(self, heading: str, body: str) -> None:
        """Add a part under a heading."""
        self.parts.append(f"## {heading}\n\n{body}")

    def text(self, matrix: Matrix, say: _Say) -> str:
        """Return the Markdown."""
        known = (matrix.sources[name] for name in sorted(self.sources) if name in matrix.sources)
        sources = [f"[{row.title}]({row.url})" if row.url else row.title for row in known]
        body = [f"---\ndescription: {_quoted(self.summary)}\n---\n\n# {self.title}\n\n{self.summary}\n", *self.parts]
        body.append(f"## {say('sources')}\n\n" + "".join(f"- {line}\n" for line in sources))
        body.append(f"{say('facts of')} {matrix.dated}.\n")
        return "\n".join(body)


def _torch(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    builds = defaultdict(list)
    for row in matrix.torch_builds:
        builds[row.torch].append(row)
    for release in matrix.torch_releases:
        rows = builds[release.version]
        cudas = ", ".join(row.cuda for row in rows)
        page = _Page(
            "torch",
            release.version,
            f"PyTorch {release.version}",
            f"PyTorch {release.version}: CUDA {cudas or say('unknown')}; Python {_span(rows) or say('unknown')}.",
        )
        page.rely(release, *rows)
        with_it = [f"torchvision {release.torchvision}" if release.torchvision else ""]
        with_it += [f"torchaudio {release.torchaudio}" if release.torchaudio else ""]
        page.values(
            say,
            [
                ("released", release.released),
                ("Python", release.requires_python),
                ("goes with", ", ".join(filter(None, with_it))),
            ],
        )
        header = (say("build"), "CUDA", say("driver from"), "Python", "cuDNN", "NCCL", say("gpu code"))
        lines = [
            (
                f"![torch {row.torch}+{row.variant}](../badge/{_badge_name(row)})",
                row.cuda,
                _floor(matrix, row.cuda, say),
                _span([row]),
                row.cudnn or say("unknown"),
                row.nccl or say("unknown"),
                _code(row, say),
            )
            for row in rows
        ]
        page.add(say("builds"), table(header, lines))
        if rows:
            page.add(say("try"), _commands(f"--torch {release.version} --cuda {_minor(rows[0].cuda)}"))
        yield page


def _tensorflow(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for row in matrix.tensorflow:
        page = _Page(
            "tensorflow",
            row.version,
            f"TensorFlow {row.version}",
            f"TensorFlow {row.version}: CUDA {row.cuda}, cuDNN {row.cudnn_major}; Python {_span([row])}.",
        )
        page.rely(row)
        page.values(
            say,
            [
                ("released", row.released),
                ("cuda", row.cuda),
                ("driver from", _floor(matrix, row.cuda, say)),
                ("Python", _span([row])),
                ("gpu code", _code(row, say)),
            ],
        )
        page.add(say("try"), _commands(f"--tensorflow {row.version}"))
        yield page


def _jax(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    versions = defaultdict(list)
    for row in matrix.jax:
        versions[row.version].append(row)
    for version, rows in versions.items():
        floors = ", ".join(dict.fromkeys(row.cuda_floor for row in rows))
        page = _Page("jax", version, f"JAX {version}", f"JAX {version}: CUDA ≥ {floors}; Python {_span(rows)}.")
        page.rely(*rows)
        header = (say("build"), "CUDA", say("driver from"), "Python", "cuDNN")
        lines = [
            (
                row.variant,
                f"≥ {row.cuda_floor}",
                f"≥ {row.minimum_driver}" if row.minimum_driver else _floor(matrix, row.cuda_floor, say),
                _span([row]),
                row.cudnn or say("unknown"),
            )
            for row in rows
        ]
        page.add(say("builds"), table(header, lines))
        page.add(say("try"), _commands(f"--jax {version}"))
        yield page


def _cuda(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for release in matrix.cuda:
        page = _Page(
            "cuda",
            release.version,
            f"CUDA {release.version}",
            f"CUDA {release.version}: {say('minimum driver')} {release.minimum_driver}.",
        )
        page.rely(release)
        page.values(
            say,
            [
                ("released", release.released),
                ("minimum driver", release.minimum_driver),
                ("gcc", release.gcc_max),
                ("gpu code", ", ".join(f"sm_{number}" for number in release.sm or ())),
            ],
        )
        minor = _minor(release.version)
        torch = sorted({row.torch for row in matrix.torch_builds if _minor(row.cuda) == minor}, key=parse)
        tensorflow = [row.version for row in matrix.tensorflow if _minor(row.cuda) == minor]
        links = [f"[PyTorch {version}](../torch/{version}.md)" for version in reversed(torch)]
        links += [f"[TensorFlow {version}](../tensorflow/{version}.md)" for version in tensorflow]
        page.add(say("frameworks"), ", ".join(links) + "\n" if links else f"{say('unknown')}\n")
        page.add(say("try"), _commands(f"--cuda {minor}", is_image=False))
        yield page


def _drivers(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for row in matrix.driver_branches:
        end = f"; {say('end')}: {row.end_of_life}" if row.end_of_life else ""
        page = _Page(
            "driver",
            str(row.branch),
            f"{say('driver')} {row.branch}",
            f"{say('driver')} {row.branch}: CUDA ≤ {row.max_cuda or say('unknown')}{end}.",
        )
        page.rely(row)
        page.values(
            say,
            [
                ("released", row.first_release),
                ("end", row.end_of_life),
                ("last release", row.last_release),
                ("max cuda", row.max_cuda),
                ("architecture", ", ".join(row.architectures)),
            ],
        )
        page.add(say("try"), _commands(f"--torch '>=2' --driver {row.branch}", is_image=False))
        yield page


def _gpus(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for gpu in matrix.gpus:
        first = find_first_branch(matrix, gpu)
        page = _Page(
            "gpu",
            gpu.id,
            f"NVIDIA {gpu.name}",
            f"NVIDIA {gpu.name}: {gpu.architecture}, {say('capability')} {gpu.compute_capability}.",
        )
        page.rely(gpu)
        page.values(
            say,
            [
                ("architecture", gpu.architecture),
                ("capability", gpu.compute_capability),
                ("memory", " ".join(filter(None, (f"{gpu.memory_gb:g} GB" if gpu.memory_gb else "", gpu.memory_type)))),
                ("bandwidth", f"{gpu.memory_bandwidth_gb_s:g} GB/s" if gpu.memory_bandwidth_gb_s else None),
                ("first driver", first[0] if first is not None else None),
                ("last driver", gpu.last_driver_branch),
                ("first cuda", gpu.first_cuda),
                ("last cuda", gpu.last_cuda),
            ],
        )
        running = defaultdict(list)
        for build in matrix.torch_builds:
            if build.sm and serves(gpu, build.sm, build.ptx):
                running[build.torch].append(build.variant)
        links = [f"[{version}](../torch/{version}.md) ({', '.join(names)})" for version, names in running.items()]
        page.add(f"{say('runs')}: PyTorch", ", ".join(links) + "\n" if links else f"{say('unknown')}\n")
        page.add(say("try"), _commands(f"--torch '>=2' --gpu {gpu.id}", is_image=False))
        yield page


def _xids(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for row in matrix.xids.values():
        page = _Page("xid", str(row.code), f"Xid {row.code}", f"Xid {row.code}: {row.meaning}.")
        page.rely(row)
        page.values(say, [("name", row.mnemonic), ("severity", row.severity), ("fix", row.action)])
        if row.advice:
            page.add(say("what to do"), f"{row.advice}\n")
        page.add(say("try"), f"```sh\nprovision doctor --xid {row.code}\n```\n")
        yield page


def _checks(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for row in matrix.checks.values():
        page = _Page("check", row.id, row.id, sentence(row.title))
        page.rely(row)
        page.values(say, [("severity", row.severity)])
        page.add(say("what to do"), f"{sentence(row.remedy)}\n")
        page.add(say("try"), "```sh\nprovision verify ssh://gpu001 --lock provision.lock\n```\n")
        yield page


def _diagnoses(matrix: Matrix, say: _Say) -> Iterator[_Page]:
    for row in matrix.diagnoses.values():
        page = _Page("diagnosis", row.id, sentence(row.title).rstrip("."), sentence(row.title))
        page.rely(row)
        page.values(say, [("name", row.id), ("severity", row.severity)])
        page.add(say("cause"), f"{sentence(row.cause)}\n")
        page.add(say("fix"), "".join(f"{number}. {step}\n" for number, step in enumerate(row.fix, 1)))
        if row.explains:
            known = [f"[{name}](../check/{name}.md)" if name in matrix.checks else name for name in row.explains]
            page.add(say("seen"), ", ".join(known) + "\n")
        page.add(say("try"), "```sh\nprovision doctor --text error.log\n```\n")
        yield page


def badge(texts: Sequence[str]) -> str:
    """Return an SVG with some short texts side by side, such as ``torch 2.9 · cu130 · sm_120``."""
    text = " · ".join(texts)
    width = 20 + 7 * len(text)
    shown = html.escape(text)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{shown}">'
        f"<title>{shown}</title>"
        f'<rect width="{width}" height="20" rx="3" fill="#24482e"/>'
        f'<text x="10" y="14" fill="#fff" font-family="Verdana,Geneva,sans-serif" font-size="11" '
        f'textLength="{width - 20}">{shown}</text></svg>\n'
    )


def build(folder: Path, url: str, page: Path | None = None) -> None:
    """Write the whole site into a folder that is not there yet.

    Args:
        folder: Where to.
        url: Address it is published under, with a slash at the end.
        page: What ``provision matrix --html`` wrote; none writes it now, which takes a minute.

    Raises:
        SystemExit: mkdocs found a broken link.
    """
    matrix = Matrix()
    with tempfile.TemporaryDirectory(prefix="provision-site-") as made:
        for language in LANGUAGES:
            source = Path(made) / language
            _write_source(source, matrix, language, url, page)
            config = Path(made) / f"{language}.yml"
            target = folder if language == "en" else folder / language
            config.write_text(_settings(language, source, target, url), encoding="utf-8")
            words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(config)]
            # The theme says at each start that a successor is being written.
            environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
            done = subprocess.run(words, env=environment, check=False)
            if done.returncode:
                raise SystemExit(f"mkdocs could not build the site in {language}")
    _thin_out(folder / "search" / "search_index.json")


def _thin_out(index: Path) -> None:
    """Shorten examples in the search: of those of a rule the findings stay, of others the beginning."""
    content = json.loads(index.read_text(encoding="utf-8"))
    finding = re.compile(r"(?:error|warn|info)\[")
    for row in content["docs"]:
        is_rule = row["location"].startswith("docs/rules/")
        parts = re.split(r"(<pre>.*?</pre>)", row["text"], flags=re.DOTALL)
        for place in range(1, len(parts), 2):
            lines = parts[place].splitlines()
            lines = [line for line in lines if finding.search(line)] if is_rule else lines[:SEARCHED_LINES]
            parts[place] = " ".join(lines)
        row["text"] = "".join(parts)
    index.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")


def _write_source(source: Path, matrix: Matrix, language: str, url: str, page: Path | None) -> None:
    for name, text in fact_pages(matrix, language).items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for kind in ("css", "js"):
        path = source / "assets" / f"site.{kind}"
        path.parent.mkdir(exist_ok=True)
        shutil.copyfile(SETTINGS.with_suffix(f".{kind}"), path)
    badges = source / "badge"
    badges.mkdir()
    for row in matrix.torch_builds:
        texts = [f"torch {row.torch}", row.variant, row.sm[-1] if row.sm else "sm ?"]
        (badges / _badge_name(row)).write_text(badge(texts), encoding="utf-8")
    if language == "en":
        _copy_plain(source)
        (source / "index.html").write_text(_home(matrix, url, page), encoding="utf-8")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        (source / _HOME).write_text(readme.replace("](README.zh-CN.md)", f"]({url}zh/)"), encoding="utf-8")
    else:
        # The documents are there in English alone.
        readme = (ROOT / "README.zh-CN.md").read_text(encoding="utf-8")
        lead = partial(_lead_to_english, url=url)
        (source / "index.md").write_text(re.sub(r"\]\(([^)\s]+)\)", lead, readme), encoding="utf-8")


def _lead_to_english(found: re.Match[str], url: str) -> str:
    """Return a link of the Chinese README as an address of the English site."""
    name, mark, anchor = found[1].partition("#")
    if "://" in name:
        return found[0]
    name = _HOME if name == "README.md" else name.replace("README.md", "")
    path = f"{name.removesuffix('.md')}/" if name.endswith(".md") else name
    return f"]({url}{path}{mark}{anchor})"


def _copy_plain(source: Path) -> None:
    """Copy the Markdown of the repository, and the files that it links to."""
    pages = [path for tree in PLAIN_TREES for path in (ROOT / tree).rglob("*.md") if "golden" not in str(path)]
    wanted = {*pages, *(ROOT / name for name in PLAIN_PAGES)}
    for page in sorted(wanted):
        for link in re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8")):
            led = (page.parent / link).resolve()
            if "://" not in link and led.is_file() and led.is_relative_to(ROOT):
                wanted.add(led)
    for path in sorted(wanted - {ROOT / "README.md", ROOT / "README.zh-CN.md"}):
        target = source / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            text = path.read_text(encoding="utf-8")
            text = re.sub(r"\]\(((?:\.\./)*)README\.md(?=[)#])", _lead_home(path), text)
            text = re.sub(r"\[([^]\n]*)\]\(([^)\s#]+)\)", partial(_keep_link, page=path), text)
            head = _NOT_SEARCHED if path.relative_to(ROOT).as_posix().startswith(UNSEARCHED) else ""
            target.write_text(head + text, encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    shutil.copytree(ROOT / "docs" / "images", source / "docs" / "images", dirs_exist_ok=True)
    shutil.copyfile(ROOT / "LICENSE", source / "LICENSE")


def _keep_link(found: re.Match[str], page: Path) -> str:
    """Return a link as it is, or its text alone where it leads to a folder or to a file that no site shows."""
    path = (page.parent / found[2]).resolve()
    is_hidden = any(part.startswith(".") and part != ".." for part in Path(found[2]).parts)
    is_folder = path.is_dir() and not (path / "README.md").is_file()
    return found[1] if "://" not in found[2] and (is_hidden or is_folder) else found[0]


def _lead_home(page: Path) -> Callable[[re.Match[str]], str]:
    """Return what makes links to the README of the repository lead to its page; a folder's own README stays."""

    def lead(found: re.Match[str]) -> str:
        is_root = (page.parent / found[1]).resolve() == ROOT
        return f"]({found[1]}{_HOME if is_root else 'README.md'}"

    return lead


def _home(matrix: Matrix, url: str, page: Path | None) -> str:
    """Return the page of the matrix, with what search engines and link previews read, and links to the rest."""
    text = page.read_text(encoding="utf-8") if page else render_page(matrix, __version__)
    says = "Which NVIDIA driver, CUDA, PyTorch, TensorFlow, JAX, Python and GPU work together, from sourced facts."
    head = (
        f'<meta name="description" content="{says}">\n<meta property="og:type" content="website">\n'
        f'<meta property="og:title" content="What runs with what">\n<meta property="og:description" content="{says}">\n'
        f'<meta property="og:url" content="{html.escape(url)}">\n'
        f'<meta property="og:image" content="{html.escape(url)}docs/images/matrix.png">\n'
        f'<link rel="icon" href="assets/images/favicon.png">\n<link rel="alternate" hreflang="zh" href="zh/">\n'
    )
    sections = ("torch", "tensorflow", "jax", "cuda", "driver", "gpu", "xid", "diagnosis", "check")
    links = [("start/", "start"), ("docs/", "docs"), *((f"{name}/", name) for name in sections)]
    places = " · ".join(f'<a href="{path}">{html.escape(_WORDS[key][0])}</a>' for path, key in links)
    return text.replace("<title>", f"{head}<title>", 1).replace(
        "<footer>", f'<footer>\n  <nav aria-label="Pages"><p>{places} · <a href="zh/" lang="zh">中文</a></p></nav>', 1
    )


def _settings(language: str, source: Path, target: Path, url: str) -> str:
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    is_english = language == "en"
    settings |= {
        "docs_dir": str(source),
        "site_dir": str(target.resolve()),
        "site_url": url if is_english else f"{url}{language}/",
        "nav": list(_navigation(source, language)),
    }
    settings["theme"] |= {"language": language}
    settings["extra"] = {
        "alternate": [
            {"name": "English", "link": f"{url}start/", "lang": "en"},
            {"name": "中文", "link": f"{url}zh/", "lang": "zh"},
        ]
    }
    return yaml.safe_dump(settings, allow_unicode=True, sort_keys=False)


def _navigation(source: Path, language: str) -> Iterator[Mapping[str, Any]]:
    def say(key: str) -> str:
        return _WORDS[key][LANGUAGES.index(language)]

    yield {say("start"): _HOME if language == "en" else "index.md"}
    sections = ("torch", "tensorflow", "jax", "cuda", "driver", "gpu", "xid", "diagnosis", "check")
    yield {say("home"): [{say(name): f"{name}/index.md"} for name in sections if (source / name).is_dir()]}
    if language == "en":
        yield {say("rules"): "docs/rules/README.md"}
        yield {say("docs"): "docs/README.md"}


def _commands(words: str, *, is_image: bool = True) -> str:
    image = f"provision image {words}\n" if is_image else ""
    return f"```sh\nprovision resolve {words}\n{image}```\n"


def _floor(matrix: Matrix, cuda: str, say: _Say) -> str:
    """Return the lowest driver of a CUDA, of the release itself or of the newest of its minor."""
    rows = [row for row in matrix.cuda if is_prefix_of(cuda, row.version)] or matrix.cuda_below(_minor(cuda))
    return f"≥ {rows[0].minimum_driver}" if rows else say("unknown")


def _code(row: Any, say: _Say) -> str:
    return ", ".join((*row.sm, *row.ptx)) if row.sm else say("unknown")


def _span(rows: Iterable[Any]) -> str:
    pythons = {python for row in rows for python in row.pythons}
    ordered = sorted(pythons, key=lambda text: (parse(text.rstrip("t")), text))
    return ", ".join(ordered) if len(ordered) < 3 else f"{ordered[0]} … {ordered[-1]}"


def _minor(cuda: str) -> str:
    return ".".join(cuda.split(".")[:2])


def _badge_name(row: Any) -> str:
    return f"torch-{row.torch}-{row.variant}.svg"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, allow_unicode=True, width=10_000).splitlines()[0]


def main(words: Sequence[str] | None = None) -> int:
    """Build the site."""
    parser = argparse.ArgumentParser(description="Build the published site.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--url", default="https://provision.example/", help="address that it is published under")
    parser.add_argument("--page", type=Path, help="what `provision matrix --html` wrote (default: it is written now)")
    options = parser.parse_args(words)
    if options.folder.exists() and any(options.folder.iterdir()):
        raise SystemExit(f"{options.folder} is not empty")
    build(options.folder, options.url.rstrip("/") + "/", options.page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
