// What is seen and touched: the question in the form and in the address, the answer, the map. All text goes into the
// page as text, never as markup.
"use strict";

(() => {
  const { map, ...packed } = JSON.parse(document.getElementById("tables").textContent);
  const tables = unpack(packed);
  const asker = makeAsker(tables);
  const $ = (id) => document.getElementById(id);
  const KINDS = { torch: "PyTorch", tensorflow: "TensorFlow", jax: "JAX", cuda: "CUDA alone" };
  const MARKS = { works: "✓", refused: "✕", unknown: "?" };
  const PLATFORM_NAMES = { "linux/amd64": "x86-64", "linux/arm64": "64-bit Arm" };
  const start = { kind: "torch", version: "", cuda: "", gpu: "", driver: "", python: "", os: "", platform: "", rest: [] };
  let state = { ...start };
  let generation = "";

  function make(name, attributes = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value == null || value === false) continue;
      if (key === "class") node.className = value;
      else node.setAttribute(key, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child != null));
    return node;
  }

  // The question

  const isDriver = (text) => /^\d{3}(\.\d{1,3}){0,2}$/.test(text);
  const gpuNumber = (flag) => tables.gpus.findIndex((row) => row[1] === flag);

  function toRequest(from) {
    const request = {
      torch: null, tensorflow: null, jax: null,
      cuda: from.cuda || null,
      python: from.python || null,
      os: from.os || null,
      platform: from.platform || null,
      gpus: from.gpu ? gpuNumber(from.gpu) : null,
      driver: isDriver(from.driver) ? from.driver : null,
    };
    if (from.kind === "cuda") request.cuda = from.cuda || tables.any;
    else request[from.kind] = from.version || tables.any;
    return request;
  }

  function fromRequest(request) {
    const kind = ["torch", "tensorflow", "jax"].find((name) => request[name] != null) || "cuda";
    const plain = (text) => (text == null || text === tables.any ? "" : text);
    return {
      kind,
      version: kind === "cuda" ? "" : plain(request[kind]),
      cuda: plain(request.cuda),
      gpu: request.gpus == null ? "" : tables.gpus[request.gpus][1],
      driver: plain(request.driver), python: plain(request.python), os: plain(request.os),
      platform: plain(request.platform), rest: [],
    };
  }

  // What the address asks stays as it is written, known or not: a part that was dropped would change the question.
  const PARTS = ["cuda", "gpu", "driver", "python", "os", "platform"];

  function readAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    const next = { ...start, rest: [] };
    next.kind = Object.keys(KINDS).find((name) => given.has(name)) || start.kind;
    const seen = new Set();
    for (const [name, value] of given) {
      const part = name === next.kind && name !== "cuda" ? "version" : name;
      if ((part !== "version" && !PARTS.includes(part)) || seen.has(part)) next.rest.push([name, value]);
      else next[part] = value;
      seen.add(part);
    }
    if (next.version === tables.any) next.version = "";
    if (next.cuda === tables.any) next.cuda = "";
    return next;
  }

  const NAMES = { cuda: "CUDA", gpu: "GPU", driver: "driver", python: "Python", os: "system", platform: "machine" };
  const clip = (text) => (text.length > 60 ? `${text.slice(0, 59)}…` : text);

  // The parts that the tables cannot answer for: [part, how it is named, why]; no part means a word of the address.
  function findUnknown(from) {
    const found = [];
    const pythons = tables.pythons.map((row) => row[0]);
    const known = {
      version: from.kind === "cuda" ? [] : tables.wishes[from.kind],
      cuda: tables.cudas, gpu: tables.gpus.map((row) => row[1]), python: pythons,
      os: tables.systems.map((row) => row[0]), platform: tables.platforms,
    };
    for (const part of ["version", ...PARTS]) {
      const value = from[part];
      if (!value || (part === "version" && from.kind === "cuda")) continue;
      const name = `${part === "version" ? KINDS[from.kind] : NAMES[part]} ${clip(value)}`;
      if (part === "driver") {
        if (!isDriver(value)) found.push([part, name, `${name} is not what nvidia-smi prints, such as 535.104.05`]);
        continue;
      }
      if (known[part].includes(value)) continue;
      const numbers = known[part].filter((text) => /^\d+(\.\d+)*$/.test(text)).sort(asker.compare);
      const span = numbers.length ? `; they reach from ${numbers[0]} to ${numbers.at(-1)}` : "";
      found.push([part, name, `the facts of this page know no ${name}${span}`]);
    }
    for (const [name, value] of from.rest) {
      const text = clip(value ? `${name}=${value}` : name);
      const why = PARTS.includes(name) || Object.hasOwn(KINDS, name) ? "asks a second time; this page answers one" : "is not part of a question";
      found.push([null, text, `${text} in the address ${why}`]);
    }
    return found;
  }

  function toAddress() {
    const given = new URLSearchParams();
    if (state.kind === "cuda") given.set("cuda", state.cuda);
    else given.set(state.kind, state.version);
    for (const part of PARTS) if (state[part]) given.set(part, state[part]);
    for (const [name, value] of state.rest) given.append(name, value);
    return `#${given}`;
  }

  // The form

  function fill(select, groups, value) {
    if (groups.every(([, options]) => options.every(([key]) => key !== value))) {
      groups = [...groups, ["", [[value, `${MARKS.unknown} ${clip(value)}`]]]];
    }
    const children = groups.map(([label, options]) => {
      const made = options.map(([key, text]) => make("option", { value: key, selected: key === value }, text));
      return label ? make("optgroup", { label }, ...made) : made;
    });
    select.replaceChildren(...children.flat());
    select.value = value;
  }

  function mark(part, value, text) {
    const changed = { ...state, [part]: value };
    const verdict = findUnknown(changed).length ? "unknown" : asker.verdict(toRequest(changed));
    return [value, `${MARKS[verdict]} ${text}`];
  }

  function fillForm() {
    for (const radio of document.querySelectorAll("#kinds input")) radio.checked = radio.value === state.kind;
    const kindName = KINDS[state.kind];
    const isBare = state.kind === "cuda";
    document.querySelector('[data-part="version"]').hidden = isBare;
    document.querySelector('[data-part="cuda"]').classList.toggle("wide", isBare);
    if (!isBare) {
      const wishes = tables.wishes[state.kind].slice(1);
      const exact = new Set(Object.values(tables.offers)
        .flatMap((offers) => offers[state.kind][tables.any][0]).map((row) => row.version));
      fill($("version"), [
        ["", [mark("version", "", "newest")]],
        ["Series", wishes.filter((wish) => !exact.has(wish)).map((wish) => mark("version", wish, wish))],
        ["Releases", wishes.filter((wish) => exact.has(wish)).map((wish) => mark("version", wish, wish))],
      ], state.version);
      $("version-label").textContent = `${kindName} version`;
    }
    fill($("cuda"), [["", [mark("cuda", "", "any"), ...tables.cudas.map((text) => mark("cuda", text, text))]]], state.cuda);
    fill($("python"), [["", [mark("python", "", "any"), ...tables.pythons.map(([text]) =>
      mark("python", text, text.endsWith("t") ? `${text} (free-threaded)` : text))]]], state.python);
    fill($("os"), [["", [mark("os", "", "any"), ...tables.systems.map(([id, name]) => mark("os", id, name))]]], state.os);
    fill($("platform"), [["", [mark("platform", "", "default"), ...tables.platforms.map((text) =>
      mark("platform", text, PLATFORM_NAMES[text] || text))]]], state.platform);
    fillGpus();
    if ($("driver").value !== state.driver) $("driver").value = state.driver;
    const isOdd = state.driver !== "" && !isDriver(state.driver);
    $("driver").setAttribute("aria-invalid", String(isOdd));
    const known = tables.drivers.find((row) => row[0] === state.driver);
    $("driver-hint").textContent = isOdd
      ? "Write what nvidia-smi prints, such as 535.104.05."
      : known ? known[1] : "";
  }

  const squeeze = (text) => text.toLowerCase().replace(/[^a-z0-9]/g, "");

  function fillGpus() {
    const words = $("gpu-filter").value.toLowerCase().split(/\s+/).map(squeeze).filter(Boolean);
    const groups = new Map();
    let count = 0;
    // Of GPUs that no rule can tell apart one is asked.
    const asked = new Map();
    for (const row of tables.gpus) {
      const [name, flag, architecture, capability, memory, classNumber, , segment] = row;
      const code = `sm${capability.replace(".", "")}`;
      const text = squeeze(`${name} ${flag} ${architecture} ${code} ${segment || ""}`);
      if (flag !== state.gpu && !words.every((word) => text.includes(word))) continue;
      count += 1;
      if (!asked.has(classNumber)) asked.set(classNumber, mark("gpu", flag, "")[1]);
      if (!groups.has(architecture)) groups.set(architecture, []);
      groups.get(architecture).push([flag, `${asked.get(classNumber)}${name}${memory ? ` · ${memory} GB` : ""}`]);
    }
    fill($("gpu"), [["", [mark("gpu", "", "any")]], ...groups], state.gpu);
    $("gpu-count").textContent = words.length ? `${count} of ${tables.gpus.length} GPUs match` : "";
  }

  // The answer

  function commandBox(label, text) {
    const button = make("button", { type: "button", "aria-label": `Copy the ${label}` }, "Copy");
    button.addEventListener("click", () => copy(text, button));
    return make("div", { class: "command" }, make("span", { "data-command": label }, text), button);
  }

  async function copy(text, button) {
    const before = button.textContent;
    let isDone = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = make("textarea", { class: "unseen" });
      area.value = text;
      document.body.append(area);
      area.select();
      isDone = document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = isDone ? "Copied" : "Select it";
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  function factItem({ id, where, status, sources }) {
    const links = sources.flatMap(([title, publisher, url, retrieved], position) => {
      const text = publisher ? `${publisher}: ${title}` : title;
      const shown = /^https?:\/\//.test(url) ? make("a", { href: url, rel: "noreferrer noopener" }, text) : text;
      return [position ? "; " : "", shown, retrieved ? ` (read ${retrieved})` : ""];
    });
    return make("li", {},
      make("span", { class: "id" }, id), make("span", { class: "tag" }, status), make("br"), ...links,
      make("span", { class: "where" }, where ? ` · ${where}` : ""));
  }

  function factList(facts, isOpen) {
    const list = make("ul", { class: "facts" }, ...[...new Set(facts)].map(factItem));
    return make("details", { open: isOpen }, make("summary", {}, `Sources (${list.children.length} facts)`), list);
  }

  function askedFor() {
    const parts = [];
    if (state.kind === "cuda") parts.push(`CUDA ${state.cuda || "alone, the newest that fits"}`);
    else {
      parts.push(`${KINDS[state.kind]} ${state.version || "(newest that fits)"}`);
      if (state.cuda) parts.push(`CUDA ${state.cuda}`);
    }
    if (state.gpu) parts.push(tables.gpus[gpuNumber(state.gpu)]?.[0] ?? state.gpu);
    if (state.driver) parts.push(`driver ${state.driver}`);
    if (state.python) parts.push(`Python ${state.python}`);
    if (state.os) parts.push(tables.systems.find((row) => row[0] === state.os)?.[1] ?? state.os);
    if (state.platform) parts.push(PLATFORM_NAMES[state.platform] || state.platform);
    return parts.join(" · ");
  }

  const megabytes = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.round(bytes / 1e6)} MB`);

  function part(name, value, detail) {
    if (value == null || value === "") return [];
    return [make("div", {}, make("dt", {}, name), make("dd", {}, value, detail ? make("small", {}, detail) : null))];
  }

  function showStack(answer) {
    const { stack } = answer;
    const eol = tables.pythons.find((row) => row[0] === stack.python)?.[1];
    const companions = ["torchvision", "torchaudio", "triton", "jaxlib", "keras", "numpy"]
      .filter((name) => name in stack.packages).map((name) => [name, stack.packages[name]]);
    const code = stack.sm.split(" ").filter(Boolean);
    const span = code.length > 1 ? `${code[0]} … ${code.at(-1)}` : code[0] || "";
    const unknown = stack.size[1] ? `, ${stack.size[1]} of unknown size on top` : "";
    const count = Object.keys(stack.packages).length;
    const built = stack.base !== null;
    return [
      make("div", { class: "verdict" },
        make("h2", {}, make("span", { "aria-hidden": "true" }, "✓"), make("span", {}, `${stack.label} works`)),
        make("p", {}, askedFor())),
      make("dl", { class: "parts" },
        ...part("CUDA", stack.cuda, stack.kind === "cuda" ? `toolkit ${stack.version}` : null),
        ...part("Driver", `${stack.driver.minimum} or newer`,
          stack.driver.recommended_branch ? `branch ${stack.driver.recommended_branch} is recommended` : null),
        ...part("Python", stack.python, eol ? `upstream support ends ${eol}` : null),
        ...part("cuDNN", stack.cudnn), ...part("NCCL", stack.nccl),
        ...companions.flatMap(([name, version]) => part(name, version)),
        ...part("GPU code", span, stack.ptx ? `and ${stack.ptx} for newer GPUs` : null),
        ...part("Image base", stack.base || "none is official",
          stack.cudaBase ? `CUDA from ${stack.cudaBase}` : built ? null : "take the pip line, or name one with --base"),
        ...part("Download", count ? megabytes(stack.size[0]) : null, count ? `${count} packages${unknown}` : null)),
      make("h3", {}, built ? "A container image" : "The lock"),
      commandBox("command", asker.toCommand(built ? "image" : "resolve", answer.request)),
      ...(stack.install
        ? [make("h3", {}, `Into a Python ${stack.python} environment`), commandBox("pip line", stack.install)] : []),
      ...(stack.warnings.length
        ? [make("h3", {}, "To know before"), make("ul", { class: "reasons" },
          ...stack.warnings.map((text) => make("li", { class: "warning" }, text)))] : []),
      make("h3", {}, "Why"),
      make("ul", { class: "reasons" }, ...stack.reasons.map((reason) => make("li", {}, reason.because))),
      ...(count ? [make("details", {}, make("summary", {}, `Packages (${count})`), make("ul", { class: "packages" },
        ...Object.entries(stack.packages).map(([name, version]) => make("li", {}, `${name} ${version}`))))] : []),
      factList(stack.facts, false),
    ];
  }

  function named(request) {
    const parts = [];
    for (const name of ["torch", "tensorflow", "jax"]) {
      if (request[name] != null) parts.push(request[name] === tables.any ? `any ${KINDS[name]}` : `${KINDS[name]} ${request[name]}`);
    }
    if (request.cuda != null) parts.push(request.cuda === tables.any ? "any CUDA" : `CUDA ${request.cuda}`);
    if (request.gpus != null) parts.push(tables.gpus[request.gpus][0]);
    if (request.driver != null) parts.push(`driver ${request.driver}`);
    if (request.python != null) parts.push(`Python ${request.python}`);
    if (request.os != null) parts.push(tables.systems.find((row) => row[0] === request.os)[1]);
    if (request.platform != null) parts.push(PLATFORM_NAMES[request.platform] || request.platform);
    return parts.length > 1 ? `${parts.slice(0, -1).join(", ")} and ${parts.at(-1)}` : parts[0];
  }

  function showRefusal(answer) {
    const isProved = answer.verdict === "refused";
    const what = named(answer.core);
    const isOne = Object.values(answer.core).filter((value) => value != null).length < 2;
    const title = isProved
      ? `${what} ${isOne ? "cannot be met" : "do not go together"}`
      : `Whether ${what} ${isOne ? "can be met" : "go together"} is not known`;
    const ways = answer.alternatives.map((other) => {
      const button = make("button", { type: "button" },
        make("strong", {}, other.change), " works", make("code", {}, other.command));
      button.addEventListener("click", () => { change(fromRequest(other.request)); $("answer").focus(); });
      return make("li", {}, button);
    });
    return [
      make("div", { class: "verdict" },
        make("h2", {}, make("span", { "aria-hidden": "true" }, isProved ? "✕" : "?"), make("span", {}, title)),
        make("p", {}, askedFor())),
      make("h3", {}, isProved ? "Because" : "What is open"),
      make("ul", { class: "reasons" }, ...answer.because.map((reason) => make("li", {}, reason.because))),
      ...(ways.length ? [make("h3", {}, "What works instead"), make("ul", { class: "ways" }, ...ways)] : []),
      make("h3", {}, "The same question in a terminal"),
      commandBox("command", asker.toCommand("resolve", toRequest(state))),
      factList(answer.because.flatMap((reason) => reason.facts), isProved),
    ];
  }

  function showUnknown(unknown) {
    const names = unknown.map(([, name]) => name);
    const title = `${names.join(", ")} ${names.length > 1 ? "are" : "is"} not known`;
    const without = { ...state, rest: [], ...Object.fromEntries(unknown.filter(([part]) => part).map(([part]) => [part, ""])) };
    const button = make("button", { type: "button" }, make("strong", {}, `Ask without ${names.join(", ")}`));
    button.addEventListener("click", () => { change(without); $("answer").focus(); });
    // The command can be asked what a part of it is not; what is not part of a question it has no flag for.
    const isCommand = unknown.every(([part]) => part && part !== "driver");
    const request = { ...toRequest(state), gpus: state.gpu ? (gpuNumber(state.gpu) < 0 ? state.gpu : gpuNumber(state.gpu)) : null };
    return [
      make("div", { class: "verdict" },
        make("h2", {}, make("span", { "aria-hidden": "true" }, "?"), make("span", {}, title)),
        make("p", {}, clip(askedFor()))),
      make("h3", {}, "What is open"),
      make("ul", { class: "reasons" }, ...unknown.map(([, , because]) => make("li", {}, because))),
      make("h3", {}, "What can be asked"),
      make("ul", { class: "ways" }, make("li", {}, button)),
      ...(isCommand
        ? [make("h3", {}, "The same question in a terminal"), commandBox("command", asker.toCommand("resolve", request))] : []),
    ];
  }

  let timer = 0;
  function showAnswer() {
    const unknown = findUnknown(state);
    const answer = unknown.length ? { verdict: "unknown" } : asker.ask(toRequest(state));
    const section = $("answer");
    section.className = answer.verdict;
    section.replaceChildren(...(unknown.length ? showUnknown(unknown) : answer.stack ? showStack(answer) : showRefusal(answer)));
    for (const part of ["version", "cuda", "gpu", "python", "os", "platform"]) {
      $(part).setAttribute("aria-invalid", String(unknown.some(([name]) => name === part)));
    }
    $("link").textContent = location.href.split("#")[0] + toAddress();
    const core = answer.core || {};
    for (const field of document.querySelectorAll(".field")) {
      const name = field.dataset.part === "version" ? state.kind : field.dataset.part;
      field.classList.toggle("clash", core[name] != null);
    }
    clearTimeout(timer);
    timer = setTimeout(() => { $("spoken").textContent = section.querySelector("h2").textContent; }, 300);
  }

  // The map

  const { generations, cells } = map;
  const versions = Object.keys(cells).sort(asker.compare).reverse();
  for (const version of versions) {
    for (const cuda of map.cudas) {
      // A cell without a name may have a build: the facts neither list it nor rule it out.
      if (asker.verdict({ torch: version, cuda }) === "refused") continue;
      cells[version][cuda] ??= ["", generations.map(() => -1)];
    }
  }
  let focused = null;

  const countOf = (served) => served.filter((value) => value > 0).length;
  const counts = Object.values(cells).flatMap((row) => Object.values(row).map(([, served]) => countOf(served))).filter(Boolean);
  const [fewest, most] = [Math.min(...counts), Math.max(...counts)];
  // The palette spans what there is, from the fewest generations that a build serves to the most.
  const level = (count) => (count ? 1 + Math.round((6 * (count - fewest)) / Math.max(1, most - fewest)) : 0);

  function drawMap() {
    const columns = map.cudas;
    const position = generations.indexOf(generation);
    const rows = versions.map((version) => {
      const made = columns.map((cuda) => {
        const found = cells[version]?.[cuda];
        if (!found) return make("td", { role: "gridcell" }, make("span", { class: "unseen" }, "no build"));
        const [label, served] = found;
        const node = make("td", { role: "gridcell", tabindex: "-1", "data-version": version, "data-cuda": cuda });
        // A cell without a name may have a build or not.
        if (!label) node.dataset.open = "";
        if (position < 0) {
          const count = countOf(served);
          const isOpen = served.every((value) => value < 0);
          node.dataset.level = String(level(count));
          node.append(isOpen ? "?" : String(count));
          const names = generations.filter((_, i) => served[i] > 0).join(", ");
          node.title = isOpen && !label ? `Whether torch ${version} has a build for CUDA ${cuda} is not known`
            : isOpen ? `${label}: its GPU code is not known` : `${label}: ${names || "no generation"}`;
        } else {
          const value = served[position];
          node.dataset.level = { 3: "6", 2: "1", 1: "1", 0: "0", "-1": "0" }[value];
          if (value === 1 || value === 2) node.className = "part";
          node.append({ 3: "●", 2: "◐", 1: "○", 0: "✕", "-1": "?" }[value]);
          const words = { 3: "has code for", 2: "has code for some of", 1: "is compiled by the driver for", 0: "has no code for", "-1": "is not known to serve" };
          node.title = label ? `${label} ${words[value]} ${generation}` : `Whether torch ${version} has a build for CUDA ${cuda} is not known`;
        }
        // What is seen is a sign; what is heard begins with it and goes on in words.
        node.replaceChildren(make("span", {}, node.textContent), make("span", { class: "unseen" }, ` ${node.title}`));
        if (state.kind === "torch" && (state.version === version || state.version.startsWith(`${version}.`)) && state.cuda === cuda) {
          node.classList.add("now");
          node.setAttribute("aria-selected", "true");
        }
        return node;
      });
      return make("tr", { role: "row" }, make("th", { scope: "row", role: "rowheader" }, version), ...made);
    });
    const head = make("tr", { role: "row" }, make("th", { role: "columnheader", scope: "col" }, make("span", { class: "unseen" }, "PyTorch")),
      ...columns.map((cuda) => make("th", { role: "columnheader", scope: "col" }, cuda)));
    $("map").replaceChildren(make("thead", { role: "rowgroup" }, head), make("tbody", { role: "rowgroup" }, ...rows));
    const again = focused && $("map").querySelector(`[data-version="${CSS.escape(focused[0])}"][data-cuda="${CSS.escape(focused[1])}"]`);
    (again || $("map").querySelector(".now") || $("map").querySelector("td[data-level]:not([data-open])"))?.setAttribute("tabindex", "0");
    $("map-hint").textContent = position < 0
      ? "Rows are PyTorch releases, columns the CUDA of a build; the number is how many GPU generations it serves."
      : `Which builds serve ${generation} GPUs.`;
    const key = (name, text, sign = "") => make("span", {}, make("i", { class: name, "aria-hidden": "true" }, sign), text);
    $("legend").replaceChildren(...(position < 0
      ? [key("k1", `${fewest} generations`, String(fewest)), key("k7", `${most} generations`, String(most)), key("k0", "not known", "?"), key("", "no build", "·")]
      : [key("k6", "own code", "●"), key("kp", "for some of them", "◐"), key("kp", "compiled by the driver", "○"), key("k0", "not served", "✕"), key("k0", "not known", "?")]));
    for (const button of document.querySelectorAll("#generations button")) {
      button.setAttribute("aria-pressed", String(button.value === generation));
    }
  }

  function moveInMap(event) {
    const at = event.target.closest("td[data-level]");
    if (!at) return;
    const go = (node) => {
      if (!node) return;
      $("map").querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
      node.setAttribute("tabindex", "0");
      focused = [node.dataset.version, node.dataset.cuda];
      node.focus();
      event.preventDefault();
    };
    const all = [...at.parentNode.querySelectorAll("td[data-level]")];
    const inRow = all.indexOf(at);
    const step = (forward) => {
      let row = at.parentNode;
      do {
        row = forward ? row.nextElementSibling : row.previousElementSibling;
        const same = row?.querySelector(`td[data-cuda="${CSS.escape(at.dataset.cuda)}"]`);
        if (same) return same;
      } while (row);
      return null;
    };
    if (event.key === "ArrowRight") go(all[inRow + 1]);
    else if (event.key === "ArrowLeft") go(all[inRow - 1]);
    else if (event.key === "ArrowDown") go(step(true));
    else if (event.key === "ArrowUp") go(step(false));
    else if (event.key === "Home") go(all[0]);
    else if (event.key === "End") go(all.at(-1));
    else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      pick(at);
      $("map").querySelector('[tabindex="0"]')?.focus();
    }
  }

  function pick(node) {
    focused = [node.dataset.version, node.dataset.cuda];
    change({ ...state, kind: "torch", version: node.dataset.version, cuda: node.dataset.cuda });
  }

  // What happens when

  function change(next, isTyping = false) {
    state = next;
    fillForm();
    showAnswer();
    drawMap();
    if (toAddress() !== location.hash) {
      if (isTyping) history.replaceState(null, "", toAddress());
      else history.pushState(null, "", toAddress());
    }
  }

  for (const [kind, name] of Object.entries(KINDS)) {
    const radio = make("input", { type: "radio", name: "kind", value: kind, id: `kind-${kind}` });
    $("kinds").append(make("label", { for: `kind-${kind}` }, radio, name));
  }
  $("kinds").addEventListener("change", (event) => change({ ...state, kind: event.target.value, version: "" }));
  for (const id of ["version", "cuda", "gpu", "python", "os", "platform"]) {
    $(id).addEventListener("change", (event) => change({ ...state, [id]: event.target.value }));
  }
  $("driver").addEventListener("input", (event) => change({ ...state, driver: event.target.value.trim().toLowerCase() }, true));
  $("gpu-filter").addEventListener("input", fillGpus);
  $("gpu-filter").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    const first = [...$("gpu").options].find((option) => option.value && option.value !== state.gpu);
    if ($("gpu-filter").value && first) change({ ...state, gpu: first.value });
  });
  $("question").addEventListener("submit", (event) => event.preventDefault());
  $("reset").addEventListener("click", (event) => {
    event.preventDefault();
    $("gpu-filter").value = "";
    change({ ...start });
  });
  $("share").addEventListener("click", (event) => copy(location.href.split("#")[0] + toAddress(), event.target));
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("answer").focus();
  });
  $("map").addEventListener("keydown", moveInMap);
  $("map").addEventListener("click", (event) => {
    const node = event.target.closest("td[data-level]");
    if (node) pick(node);
  });
  $("generations").append(...["", ...generations].map((name) => {
    const button = make("button", { type: "button", value: name, "aria-pressed": "false" }, name || "All generations");
    button.addEventListener("click", () => { generation = name; drawMap(); });
    return button;
  }));
  $("drivers").append(...tables.drivers.map(([version, note]) => make("option", { value: version }, note)));

  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("provision-theme"); } catch { /* a page from a file may have no storage */ }
  function paint() {
    const isDark = chosen ? chosen === "dark" : prefersDark.matches;
    root.dataset.theme = isDark ? "dark" : "light";
    $("theme").textContent = isDark ? "Light" : "Dark";
  }
  prefersDark.addEventListener("change", paint);
  $("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("provision-theme", chosen); } catch { /* then it holds until the page is left */ }
    paint();
  });

  const days = Math.floor((Date.now() - Date.parse(tables.dated)) / 86400000);
  if (days > 0) $("age").textContent = `, ${days} ${days === 1 ? "day" : "days"} old`;
  if (days > 90) $("age").classList.add("old");

  // A printed page shows its sources and packages.
  addEventListener("beforeprint", () => {
    for (const item of document.querySelectorAll("details")) item.open = true;
  });
  // An address that was followed stays as it is.
  function follow() {
    state = readAddress();
    fillForm();
    showAnswer();
    drawMap();
  }
  addEventListener("hashchange", follow);
  addEventListener("popstate", follow);
  paint();
  follow();
  window.provision = { ask: asker.ask, toRequest, verdict: asker.verdict };
})();
