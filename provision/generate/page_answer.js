// Answers a question by walking the trees of provision/resolve/survey.py. Which candidates there are, their order, what
// excludes them and in which words, what an environment holds and which changes are tried all come from the tables; what
// is here goes through them in the solver's order. A test holds the answers against the solver.
"use strict";

// What is held more than once stands before what holds it, as ~position there; a dict as the number of its names.
// eslint-disable-next-line no-unused-vars
function unpack({ shapes, values }) {
  const found = [];
  const open = (value) => {
    if (typeof value === "number") return value < 0 ? found[~value] : value;
    if (Array.isArray(value)) return value.map(open);
    if (!(value instanceof Object)) return value;
    const [[shape, row]] = Object.entries(value);
    return Object.fromEntries(shapes[shape].map((name, at) => [name, open(row[at])]));
  };
  for (const value of values) found.push(open(value));
  return found.at(-1);
}

// eslint-disable-next-line no-unused-vars
function makeAsker(tables) {
  const KINDS = ["torch", "tensorflow", "jax", "cuda"];
  const [GPU, CANDIDATE] = ["\x01", "\x04"];
  const { limits } = tables;

  const compare = (left, right) => {
    const a = left.split("."), b = right.split(".");
    for (let i = 0; i < Math.max(a.length, b.length); i++) {
      const difference = Number(a[i] || 0) - Number(b[i] || 0);
      if (difference) return difference;
    }
    return 0;
  };
  const unique = (items) => [...new Set(items)];
  const group = (items, key) => {
    const found = new Map(items.map((item) => [key(item), []]));
    for (const item of items) found.get(key(item)).push(item);
    return found;
  };

  const places = new Map();
  function placeOf(driver) {
    if (!places.has(driver)) places.set(driver, tables.thresholds.filter((text) => compare(text, driver) <= 0).length);
    return places.get(driver);
  }

  // What the question gives: which branch every tree takes, and the names that stand in its words.
  function read(request) {
    const gpu = tables.gpus[request.gpus];
    const system = tables.systems.find((row) => row[0] === request.os);
    // A branch stands for its newest known release.
    const driver = tables.branches[request.driver]?.[0] ?? request.driver;
    const at = {
      cuda: 1 + tables.cudas.indexOf(request.cuda),
      python: 1 + tables.pythons.findIndex((row) => row[0] === request.python),
      os: 1 + tables.systems.indexOf(system),
      gpus: gpu ? 1 + gpu[5] : 0,
      driver: driver == null ? 0 : placeOf(driver),
    };
    // A part, then each position from which another tree follows, with that tree; or what is said.
    const walk = (tree) => {
      while (typeof tree[0] === "string") {
        let i = 1;
        while (tree[i + 2] <= at[tree[0]]) i += 2;
        tree = tree[i + 1];
      }
      return tree;
    };
    const names = ["", gpu?.[0], driver, driver?.split(".")[0], , request.os];
    const say = (text, own) => text.replace(/[\x01-\x05]/g, (mark) => names[mark.charCodeAt()] ?? own.label);
    const facts = { [CANDIDATE]: ({ fact }) => fact, [`gpu/${GPU}`]: () => gpu[6] };
    const tell = (reason, own) => ({
      ...reason, subject: say(reason.subject, own), because: say(reason.because, own),
      facts: reason.facts.map((fact) => facts[fact.id]?.(own) ?? fact),
    });
    return { gpu, system, at, walk, say, tell, platform: request.platform || tables.platforms[gpu ? gpu[8] : 0] };
  }

  function attempt(request) {
    const question = read(request);
    const { platform, at, walk } = question;
    const kind = KINDS.find((name) => request[name] != null) || "cuda";
    const rejections = [];
    const refuse = (found, own) => { for (const row of found) rejections.push({ row, own }); };
    const [candidates, unknown] = tables.offers[platform][kind][request[kind] ?? tables.any];
    refuse(walk(tables.unfit[platform]));
    if (!rejections.length) refuse(unknown);
    if (rejections.length) return { question, rejections };
    const kept = candidates.filter((candidate) => {
      const found = candidate.rules.flatMap(walk);
      refuse(found.length ? [found.find((row) => row.is_proved) ?? found[0]] : [], candidate);
      return !found.length;
    });
    // A version that may have builds beside those that were rejected is not excluded by what rejects them.
    const open = new Set(rejections.filter(({ row }) => row.rule !== "os").map(({ own }) => own.version));
    for (const { version } of kept) open.delete(version);
    for (const candidate of candidates) if (open.delete(candidate.version)) refuse(walk(candidate.open), candidate);
    for (const candidate of kept) {
      const found = walk(candidate.tries);
      if (!found.tries) refuse(found, candidate);
      else for (const [python, base, closed] of found.tries) {
        const stand = walk(base);
        at.glibc = stand.glibc ?? question.system?.[3];
        const environment = stand.base === undefined ? stand : walk(closed);
        if (environment.need) return { question, found: { kind, candidate, python, stand, environment } };
        refuse(environment, candidate);
      }
    }
    return { question, rejections };
  }

  function assemble(request, { gpu, system, platform, walk, say, tell }, { kind, candidate, python, stand, environment }) {
    // The trees that an answer was found by are no part of it: written out, they are far larger than all tables.
    const { rules, tries, ...own } = candidate;
    const { need: tree, ...closed } = environment;
    const need = walk(tree);
    const reasons = [...need.reasons, ...environment.reasons, ...stand.reasons].map((reason) => tell(reason, candidate));
    const ofDriver = reasons.find((reason) => reason.subject === "driver");
    if (ofDriver) for (const { because } of taken(request)) ofDriver.because += `; ${because}`;
    const warnings = [...Object.values(walk(tables.driver_warning)), ...need.warnings, ...stand.warnings, ...environment.warnings];
    const facts = [candidate.fact, ...reasons.flatMap((reason) => reason.facts), gpu?.[6], system?.[2]];
    return {
      ...own, ...closed, ...need, ...stand, kind, python, platform, reasons,
      framework: kind === "cuda" ? null : kind,
      os: stand.os ?? request.os,
      cudnn: stand.cudnn || environment.cudnn,
      nccl: stand.nccl || environment.nccl,
      packages: Object.fromEntries(environment.packages),
      install: environment.install?.join(" "),
      warnings: warnings.map((text) => say(text, candidate)),
      facts: unique(facts.filter(Boolean)),
    };
  }

  // Why not

  const isProved = (rejections) => rejections.length > 0 && rejections.every(({ row }) => row.is_proved);

  // Drop every part without which the question is still refused, and still proved where it was.
  function smallest(request, wasProved) {
    let core = request;
    for (const part of tables.parts) {
      if (core[part] == null) continue;
      const isFramework = KINDS.slice(0, 3).includes(part);
      if (isFramework && attempt(core).rejections.some(({ row }) => row.subject)) continue;
      const fewer = { ...core, [part]: null };
      const found = tables.parts.some((name) => fewer[name] != null) && attempt(fewer).rejections;
      if (found && (!wasProved || isProved(found))) core = fewer;
    }
    return core;
  }

  function toFlags(request) {
    const flags = [...KINDS, "python", "os", "platform", "gpus", "driver"].filter((part) => request[part] != null);
    // A GPU that the tables do not know goes by the name it was asked with.
    return flags.map((part) =>
      part === "gpus" ? ["--gpu", tables.gpus[request.gpus]?.[1] ?? request.gpus] : [`--${part}`, request[part]]);
  }
  const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);
  const toCommand = (command, request) => ["provision", command, ...toFlags(request).flat()].map(quote).join(" ");

  function sentence(subjects, because) {
    if (subjects.length < 2) return [...subjects, because].join(" ");
    const first = `${subjects[0].split(" ")[0]} `;
    const isOne = subjects.every((subject) => subject.startsWith(first));
    const names = subjects.map((subject, i) => (isOne && i ? subject.slice(first.length) : subject));
    const more = names.length - limits.SUBJECTS_SHOWN;
    const last = more > 0 ? `${names.splice(limits.SUBJECTS_SHOWN - 1).length} more` : names.pop();
    const [verb, ...rest] = because.split(" ");
    return [`${names.join(", ")} and ${last}`, tables.plural[verb] || verb, ...rest].join(" ");
  }

  // Group what is said alike of different candidates.
  function chain(causes, { tell }) {
    const told = causes.map(({ row, own }) => tell(row, own));
    const alike = [...group(told, (cause) => JSON.stringify([cause.rule, cause.because, cause.is_proved])).values()];
    const byRule = group(alike, ([cause]) => cause.rule);
    const shown = alike.filter((members) => byRule.get(members[0].rule).indexOf(members) < limits.GROUPS_SHOWN);
    const more = [...byRule].filter(([, { length }]) => length > limits.GROUPS_SHOWN);
    return [
      ...shown.map((members) => ({
        because: sentence(unique(members.map((cause) => cause.subject).filter(Boolean)), members[0].because),
        facts: unique(members.flatMap((cause) => cause.facts)).slice(0, limits.SUBJECTS_SHOWN + 2),
      })),
      ...more.map(([, { length }]) => ({ because: `${length - limits.GROUPS_SHOWN} more candidates fail likewise`, facts: [] })),
    ];
  }

  function completeness(causes) {
    const builds = causes.filter(({ row, own }) => own && tables.of_builds.includes(row.rule)).map(({ own }) => own);
    const closed = builds.filter(({ complete }) => complete.length);
    if (!closed.length) return [];
    const versions = unique(closed.map(({ version }) => `torch ${version}`));
    const because = versions.length === 1 ? "is known with all its builds" : "are known with all their builds";
    const facts = unique(closed.flatMap(({ complete }) => complete)).slice(0, limits.SUBJECTS_SHOWN);
    return [{ because: sentence(versions, because), facts }];
  }

  const taken = (request) => tables.branches[request.driver]?.[1] ?? [];

  // What works instead

  function changes(part, request) {
    let near = tables.near[part]?.[part === "driver" ? "0" : request[part]] || [];
    if (part === "driver") {
      const on = (side) => near.filter(([driver]) => Math.sign(compare(driver, request.driver)) === side);
      near = [...on(1), ...on(-1).reverse()];
    }
    return near.map(([value, change]) => ({ request: { ...request, [part]: value }, change }));
  }

  const asked = (request) => tables.parts.filter((part) => request[part] != null).reverse();

  // Of each queue of changes the first that works, as far as trials go; a turn that was begun is ended.
  function tried(ways, most) {
    const found = new Map();
    const done = new Set();
    let trials = 0, last = -1;
    for (const { request, change, queue, turn } of ways) {
      if (found.size >= limits.ALTERNATIVES_MAX || (trials >= most && turn !== last)) break;
      last = turn;
      if (done.has(queue)) continue;
      trials += 1;
      if (attempt(request).rejections) continue;
      done.add(queue);
      const command = toCommand("resolve", request);
      if (!found.has(command)) found.set(command, { request, change, command });
    }
    return [...found.values()];
  }

  // Of each part of the conflict the nearest value that works; the parts take turns. Where no single change does, two
  // parts change at once.
  function alternatives(request, core) {
    const single = asked(core)
      .flatMap((part, queue) => changes(part, request).map((way, turn) => ({ ...way, queue, turn })))
      .sort((a, b) => a.turn - b.turn);
    const found = tried(single, limits.TRIALS_MAX);
    if (found.length) return found;
    const parts = asked(request);
    const pairs = parts.flatMap((first, i) => parts.slice(i + 1).map((second) => [first, second]));
    const both = pairs.filter((pair) => pair.some((part) => core[part] != null)).flatMap((pair, queue) => {
      const [lefts, rights] = pair.map((part) => changes(part, request).slice(0, limits.PAIR_VALUES_MAX));
      return lefts.flatMap((left, n) => rights.map((right, m) => ({
        queue, distance: n + m, change: `${left.change} and ${right.change}`,
        request: { ...right.request, [pair[0]]: left.request[pair[0]] },
      }))).sort((a, b) => a.distance - b.distance);
    });
    return tried(both.map((way, turn) => ({ ...way, turn })), limits.PAIR_TRIALS_MAX);
  }

  // A question: one framework at most (its version, or the wish that any meets), and what else is asked.
  function ask(request) {
    const { question, found, rejections } = attempt(request);
    if (found) {
      const stack = assemble(request, question, found);
      return { verdict: "works", exit: 0, stack, request: { ...request, [stack.kind]: stack.version } };
    }
    const core = smallest(request, isProved(rejections));
    const { question: smaller, rejections: causes } = attempt(core);
    const proved = isProved(causes);
    return {
      verdict: proved ? "refused" : "unknown",
      exit: proved ? 3 : 4,
      core,
      conflict: toFlags(core).map((words) => words.join(" ")),
      because: [...chain(causes, smaller), ...(proved ? completeness(causes) : []), ...taken(core)],
      alternatives: alternatives(request, core),
    };
  }

  const verdict = (request) => {
    const { found, rejections } = attempt(request);
    return found ? "works" : isProved(rejections) ? "refused" : "unknown";
  };

  return { ask, verdict, toCommand, compare };
}
