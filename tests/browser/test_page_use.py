"""The page in use: by address, keyboard, phone, in the dark, on paper, and without the network."""

from __future__ import annotations

import json

import pytest
from page_tables import read_tables

from provision.generate import page as page_module
from provision.resolve.request import parse_request
from provision.resolve.solve import solve
from provision.resolve.stack import Refusal

PHONE = (390, 844)
REFUSED = "#torch=2.1&cuda=12.4"


def _title(browser):
    return browser.execute_script("return document.querySelector('#answer h2').innerText.replace(/\\s+/g, ' ')")


def _messages(browser):
    return [item["message"] for item in browser.get_log("browser")]


def test_it_loads_alone_and_is_small(opened, page):
    browser = opened()
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(page.as_uri())
    entries = [json.loads(item["message"])["message"] for item in browser.get_log("performance")]
    asked = [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
    assert {url for url in asked if not url.startswith("data:")} == {page.as_uri()}
    assert _messages(browser) == []
    assert page.stat().st_size < 2_000_000
    assert "works" in _title(browser)


def test_address_holds_the_question(opened):
    browser = opened(REFUSED)
    assert "do not go together" in _title(browser)
    assert browser.execute_script("return document.getElementById('cuda').value") == "12.4"
    browser.execute_script(
        "const field = document.getElementById('cuda'); field.value = '12.1';"
        "field.dispatchEvent(new Event('change', {bubbles: true}))"
    )
    assert "works" in _title(browser)
    assert browser.execute_script("return location.hash") == "#torch=2.1&cuda=12.1"
    browser.execute_script("history.back()")
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert "do not go together" in _title(browser)


@pytest.mark.parametrize(
    "fragment",
    [
        "#torch=99.9&cuda=<img src=x onerror=alert(1)>&gpu=%22%3E&driver=rm%20-rf&python=__proto__&os=constructor",
        "#%%%",
        "#torch=2.1&torch=2.2&platform=linux/riscv",
    ],
)
def test_address_that_makes_no_sense_is_not_answered(opened, fragment):
    browser = opened(fragment)
    assert "not known" in _title(browser)
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0


@pytest.mark.parametrize(
    ("fragment", "part"),
    [
        ("#torch=9.9", "PyTorch 9.9"),
        ("#torch=2.8&gpu=foo", "GPU foo"),
        ("#torch=2.8&python=2.7", "Python 2.7"),
        ("#torch=2.8&cuda=99.1", "CUDA 99.1"),
        ("#torch=2.8&os=plan9", "system plan9"),
        ("#torch=2.8&driver=rm+-rf", "driver rm -rf"),
        ("#pytorch=2.8", "pytorch=2.8"),
        ("#torch=2.8&torch=2.1", "torch=2.1"),
        ("#torch=2.8&jax=0.4.38", "jax=0.4.38"),
    ],
)
def test_unknown_part_of_an_address_is_named_and_nothing_works(opened, fragment, part):
    browser = opened(fragment)
    browser.execute_async_script("setTimeout(arguments[0], 500)")
    assert _title(browser) == f"? {part} is not known"
    assert browser.execute_script("return document.getElementById('answer').className") == "unknown"
    assert part in browser.find_element("css selector", "#answer .reasons").text
    assert f"{part} is not known" in browser.execute_script(
        "return [...document.querySelectorAll('[role=status]')].map((node) => node.textContent).join()"
    )
    marks = browser.execute_script("return [...document.querySelectorAll('#platform option')].map((o) => o.text[0])")
    assert set(marks) == {"?"}
    assert browser.execute_script("return location.hash") == fragment
    browser.execute_script("document.querySelector('.ways button').click()")
    assert "works" in _title(browser)
    assert part.split("=")[-1].split()[-1] not in browser.execute_script("return location.hash")


def test_command_of_an_unknown_part_asks_the_same(opened):
    browser = opened("#torch=2.8&gpu=foo")
    text = browser.execute_script("return document.querySelector('[data-command]').textContent")
    assert text == "provision resolve --torch 2.8 --gpu foo"


def test_following_a_link_to_an_unknown_part_keeps_the_address(opened):
    browser = opened("#torch=2.8")
    browser.execute_script("location.hash = '#pytorch=2.8'")
    browser.execute_async_script("setTimeout(arguments[0], 200)")
    assert "pytorch=2.8 is not known" in _title(browser)
    assert browser.execute_script("return location.hash") == "#pytorch=2.8"


def test_map_does_not_deny_a_build_that_may_exist(opened, matrix):
    browser = opened()
    cells = browser.execute_script(
        "const heads = [...document.querySelectorAll('#map thead th')].map((cell) => cell.innerText);"
        "return [...document.querySelectorAll('#map tbody tr')].flatMap((row) => [...row.children].slice(1).map("
        "(cell, i) => [row.children[0].innerText, heads[i + 1], cell.textContent]))"
    )
    for version, cuda, text in cells:
        if not text.startswith(("no build", "? Whether")):
            continue
        found = solve(parse_request({"torch": version, "cuda": cuda}), matrix)
        assert isinstance(found, Refusal), (version, cuda)
        assert text.startswith("no build") == found.is_proved, (version, cuda, text)
    kinds = {text.split(" ")[0] for _, _, text in cells}
    assert {"no", "?"} <= kinds
    assert {cuda for _, cuda, text in cells if not text.startswith("no build")} == {cuda for _, cuda, _ in cells}


def test_refusal_offers_what_works(opened):
    browser = opened(REFUSED)
    browser.execute_script("document.querySelector('.ways button').click()")
    assert "works" in _title(browser)
    assert browser.execute_script("return document.activeElement.id") == "answer"


def test_conflicting_fields_are_named(opened):
    browser = opened("#torch=2.1&cuda=12.4&python=3.11")
    clash = browser.execute_script(
        "return [...document.querySelectorAll('.field.clash')].map((field) => field.dataset.part)"
    )
    assert clash == ["version", "cuda"]


def test_gpus_are_searched(opened):
    browser = opened()
    browser.execute_script(
        "const field = document.getElementById('gpu-filter'); field.value = 'rtx 4090';"
        "field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    names = browser.execute_script("return [...document.getElementById('gpu').options].slice(1).map((o) => o.text)")
    assert names
    assert all("4090" in name for name in names)


def test_odd_driver_is_said_and_leaves_no_answer(opened):
    browser = opened()
    field = browser.find_element("id", "driver")
    field.send_keys("53x")
    assert field.get_attribute("aria-invalid") == "true"
    assert "nvidia-smi" in browser.find_element("id", "driver-hint").text
    assert _title(browser) == "? driver 53x is not known"
    field.send_keys("\ue003" * 3 + "535.104.05")
    assert "works" in _title(browser)


def test_everything_is_reached_by_keyboard_in_order_and_left_again(opened):
    from selenium.webdriver.common.keys import Keys

    browser = opened(REFUSED)
    browser.execute_script("document.body.tabIndex = -1; document.body.focus()")
    seen = []
    for _ in range(60):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        found = browser.execute_script(
            "const node = document.activeElement; if (!node || node === document.body) return null;"
            "const shown = getComputedStyle(node.closest('.segments label') || node);"
            "const name = node.id || node.className || node.tagName + ':' + (node.value || node.innerText);"
            "return [name, shown.outlineStyle,"
            " node.getBoundingClientRect().width > 0]"
        )
        if found is None or (seen and found[0] == seen[0][0]):
            break
        seen.append(found)
    names = [name for name, _, _ in seen]
    wanted = ["skip", "theme", "kind-torch", "version", "cuda", "gpu-filter", "gpu", "driver", "python", "os",
              "platform", "share", "reset"]  # fmt: skip
    assert [name for name in names if name in wanted] == wanted
    assert len(names) < 60, "the focus never came round"
    assert any("TD" in name or "now" in name for name in names), names
    hidden = [name for name, outline, _ in seen if outline == "none"]
    assert not hidden, f"no visible focus on {hidden}"


def test_map_is_walked_by_arrows_and_chosen_by_enter(opened):
    from selenium.webdriver.common.keys import Keys

    browser = opened()
    cell = browser.find_element("css selector", "#map [tabindex='0']")
    browser.execute_script("arguments[0].focus()", cell)
    before = browser.execute_script("return document.activeElement.dataset.version")
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    version, cuda = browser.execute_script(
        "const cell = document.activeElement; return [cell.dataset.version, cell.dataset.cuda]"
    )
    assert version != before
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_script("return location.hash") == f"#torch={version}&cuda={cuda}"
    assert browser.execute_script("return document.activeElement.dataset.version") == version


@pytest.mark.parametrize("generation", ["", "Kepler", "Hopper"])
def test_map_tells_by_sign_and_words_not_by_colour_alone(opened, generation):
    browser = opened()
    browser.execute_script('document.querySelector(`#generations button[value="${arguments[0]}"]`).click()', generation)
    cells = browser.execute_script(
        "return [...document.querySelectorAll('#map td[data-level]')]"
        ".map((cell) => [cell.children[0].innerText, cell.children[1].textContent])"
    )
    assert len(cells) > 50
    assert all(sign and label for sign, label in cells)


def test_it_fits_a_phone(start_browser, page):
    browser = start_browser(size=PHONE)
    for fragment in ("", REFUSED, "#jax=&gpu=h100-sxm"):
        browser.get("about:blank")
        browser.get(page.as_uri() + fragment)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= PHONE[0], fragment
        small = browser.execute_script(
            "return [...document.querySelectorAll('button, select, input:not([type=radio]), .segments label')]"
            ".filter((node) => node.offsetHeight && node.offsetHeight < 28).map((node) => node.outerHTML)"
        )
        assert small == []


def test_no_words_are_cut_on_a_phone(start_browser, page):
    browser = start_browser(size=(360, 740))
    browser.get(page.as_uri())
    cut = browser.execute_script(
        """
        const ruler = document.createElement("canvas").getContext("2d");
        const room = (node) => {
          const style = getComputedStyle(node);
          ruler.font = style.font;
          return node.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
        };
        const found = [];
        for (const node of document.querySelectorAll("input[placeholder]")) {
          const wide = room(node);
          if (ruler.measureText(node.placeholder).width > wide) found.push(node.placeholder);
        }
        for (const node of document.querySelectorAll(".hint, .legend span, h2")) {
          if (node.scrollWidth > node.clientWidth + 1) found.push(node.textContent);
        }
        return found;
        """
    )
    assert cut == []


def test_dark_follows_the_system_and_the_button(start_browser, page):
    browser = start_browser(dark=True)
    browser.get(page.as_uri())

    def ground():
        colour = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(","))

    assert ground() < 200
    browser.find_element("id", "theme").click()
    assert ground() > 600
    browser.refresh()
    assert ground() > 600
    assert browser.find_element("id", "theme").text == "Dark"
    browser.find_element("id", "theme").click()
    assert browser.find_element("id", "theme").text == "Light"


def test_paper_has_the_answer_and_its_sources_and_no_form(opened):
    browser = opened(REFUSED)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.execute_script("dispatchEvent(new Event('beforeprint'))")
        assert browser.execute_script("return document.getElementById('question').offsetHeight") == 0
        assert browser.execute_script("return document.querySelector('.facts').offsetHeight") > 0
        text = browser.execute_script("return document.getElementById('answer').innerText")
        assert "CUDA 12.4" in text
        assert browser.find_element("id", "link").text.endswith(f"matrix.html{REFUSED}")
        assert browser.print_page()
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})


HOSTILE = "</script><script>window.struck = 1</script><img src=x onerror='window.struck = 1'>\"'&"


def test_hostile_facts_are_shown_as_text_and_do_nothing(browser, page, tmp_path):
    before, rest = page.read_text(encoding="utf-8").split('<script type="application/json" id="tables">')
    data, after = rest.split("</script>", 1)
    gpu = read_tables(page.read_text(encoding="utf-8"))["gpus"][60][1]
    tables = json.loads(data)

    def spoil(value):
        """Put hostile words into every text that people read, wherever it stands."""
        if isinstance(value, list):
            return [spoil(item) for item in value]
        if isinstance(value, dict):
            return {name: spoil(item) for name, item in value.items()}
        if isinstance(value, str) and " " in value:
            return HOSTILE + value
        return "javascript:window.struck = 1" if str(value).startswith("http") else value

    tables["values"] = spoil(tables["values"])
    struck = tmp_path / "struck.html"
    data = page_module._to_script_data(tables)
    struck.write_text(f'{before}<script type="application/json" id="tables">{data}</script>{after}', encoding="utf-8")
    for fragment in (f"#torch=2.1&os=debian12&gpu={gpu}", f"{REFUSED}&os=debian12"):
        browser.get("about:blank")
        browser.get(struck.as_uri() + fragment)
        assert "window.struck" in browser.execute_script("return document.getElementById('answer').innerText")
        assert browser.execute_script("return window.struck ?? null") is None
        assert browser.execute_script("return document.querySelectorAll('img').length") == 0
        assert browser.execute_script("return document.querySelectorAll('a[href^=javascript]').length") == 0


@pytest.mark.parametrize("fragment", ["", REFUSED, "#torch=2.1&driver=535.104.05&gpu=rtx-4090", "#cuda=12.4"])
@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(opened, axe, fragment, is_dark):
    browser = opened(fragment)
    browser.execute_script("document.documentElement.dataset.theme = arguments[0]", "dark" if is_dark else "light")
    browser.execute_script("for (const item of document.querySelectorAll('details')) item.open = true")
    # The page's policy admits no other script; the debugger's does not ask it.
    browser.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
    found = browser.execute_async_script("const done = arguments[0]; axe.run().then(done)")
    wrong = [
        (item["id"], item["nodes"][0]["html"][:200], item["nodes"][0]["failureSummary"]) for item in found["violations"]
    ]
    assert wrong == []
