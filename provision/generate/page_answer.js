// Answers a question by walking the trees of provision/resolve/survey.py. Which candidates there are, their order, what
// excludes them and in which words, what an environment holds and which changes are tried all come from the tables; what
// is here goes through them in the solver's order. A test holds the answers against the solver.
"use strict";

// eslint-disable-next-line no-unused-vars
function makeAsker(tables) {
  const KINDS = ["torch", "tensorflow", "jax", "cuda"];
  const [OWN_FACT, GPU_FACT] = [-1, -2];
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

  const remember = (make) => {
    const known = new Map();
    return (key) => known.get(key) ?? known.set(key, make(key)).get(key);
  };
  const placeOf = remember((driver) => tables.thresholds.filter((text) => compare(text, driver) <= 0).length);

  // What the question gives: which branch every tree takes, and the names that stand in its words.
  function read(request) {
    const kind = KINDS.find((name) => request[name] != null) || "cuda";
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
    // A tree is the number of a branching, as its part and each position from which another tree follows; or of a leaf.
    const walk = (tree) => {
      while (tree >= 0) {
        const node = tables.nodes[tree];
        for (let i = 1; node[i] <= at[tables.axes[node[0]]]; i += 2) tree = node[i + 1];
      }
      return tables.leaves[~tree];
    };
    const names = ["", gpu?.[0], driver, driver?.split(".")[0], "", request.os];
    const say = (text, own) =>
      tables.texts[text].replace(/[\x01-\x05]/g, (mark) => names[mark.charCodeAt()] || own?.label);
    const facts = (numbers, own) => numbers.map((n) => (n === OWN_FACT ? own.fact : n === GPU_FACT ? gpu[6] : n));
    return { kind, gpu, system, at, walk, say, facts, platform: request.platform || tables.platforms[gpu ? gpu[8] : 0] };
  }

  const isRefusal = (leaf) => typeof leaf[0] === "number";

  function attempt(request) {
    const question = read(request);
    const { kind, platform, at, walk } = question;
    const rejections = [];
    const refuse = (leaf, own) => { for (const number of leaf) rejections.push({ row: tables.rejections[number], own }); };
    const [offered, unknown] = tables.offers[platform][kind][request[kind] ?? tables.any];
    refuse(walk(tables.unfit[platform]));
    if (!rejections.length) refuse(walk(unknown));
    if (rejections.length) return { question, rejections };
    const candidates = tables.rows[offered].map((number) => tables.candidates[platform][number]);
    const kept = candidates.filter((candidate) => {
      const found = tables.rows[candidate.rules].flatMap(walk);
      const proved = found.find((number) => tables.rejections[number][1]);
      refuse(found.length ? [proved ?? found[0]] : [], candidate);
      return !found.length;
    });
    // A version that may have builds beside those that were rejected is not excluded by what rejects them.
    const open = new Set(rejections.filter((item) => item.row[0] !== "os").map((item) => item.own.version));
    for (const { version } of kept) open.delete(version);
    for (const candidate of candidates) if (open.delete(candidate.version)) refuse(walk(candidate.open), candidate);
    for (const candidate of kept) {
      const tries = walk(candidate.tries);
      if (isRefusal(tries)) refuse(tries, candidate);
      else for (const [base, closed, python] of tries) {
        const stand = walk(base);
        at.glibc = stand[3] ?? question.system?.[3];
        const environment = isRefusal(stand) ? stand : walk(closed);
        if (!isRefusal(environment)) return { question, found: { candidate, python, stand, environment } };
        refuse(environment, candidate);
      }
    }
    return { question, rejections };
  }

  function assemble(request, question, { candidate, python, stand, environment }) {
    const { kind, gpu, system, walk, say } = question;
    const texts = (numbers) => numbers.map((number) => say(number, candidate));
    const [base, cudaBase, os, , cudnn, nccl] = stand;
    const [driver, ofNeed, aboutNeed, [sm, ptx]] = walk(environment[8]);
    const reasons = [...ofNeed, ...environment[6], ...stand[6]].map(([subject, text, facts]) => ({
      subject, because: say(text, candidate), facts: question.facts(facts, candidate),
    }));
    const ofDriver = reasons.find((reason) => reason.subject === "driver");
    if (ofDriver) for (const { because } of taken(request)) ofDriver.because += `; ${because}`;
    const facts = [candidate.fact, ...reasons.flatMap((reason) => reason.facts), gpu?.[6], system?.[2]];
    return {
      kind, framework: kind === "cuda" ? null : kind, version: candidate.version, label: candidate.label,
      cuda: environment[0], cudnn: cudnn || environment[1], nccl: nccl || environment[2],
      python, platform: question.platform, os: os || request.os,
      packages: Object.fromEntries(tables.rows[environment[3]].map((number) => tables.packages[number])),
      base: base && base[0], baseSize: base && base[1], cudaBase,
      driver: { minimum: driver[0], recommended: driver[1], native: driver[2], maximum: driver[3] },
      sm, ptx, size: environment[4],
      install: environment[5] < 0 ? null : texts(tables.rows[environment[5]]).join(" "),
      reasons,
      warnings: texts([...walk(tables.insecure), ...aboutNeed, ...stand[7], ...environment[7]]),
      facts: unique(facts.filter((fact) => fact != null)),
    };
  }

  // Why not

  const isProved = (rejections) => rejections.length > 0 && rejections.every((item) => item.row[1]);

  // Drop every part without which the question is still refused, and still proved where it was.
  function smallest(request, wasProved) {
    let core = request;
    for (const part of tables.parts) {
      if (core[part] == null) continue;
      const isFramework = KINDS.slice(0, 3).includes(part);
      if (isFramework && attempt(core).rejections.some((item) => item.row[2])) continue;
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
  function chain(causes, { say, facts }) {
    causes = causes.map(({ row: [rule, proved, subject, text, numbers], own }) => ({
      rule, proved, subject: subject === "\x04" ? own.label : subject, because: say(text, own), facts: facts(numbers, own),
    }));
    const alike = [...group(causes, (cause) => JSON.stringify([cause.rule, cause.because, cause.proved])).values()];
    const byRule = group(alike, ([cause]) => cause.rule);
    const shown = alike.filter((members) => byRule.get(members[0].rule).indexOf(members) < limits.GROUPS_SHOWN);
    const reasons = shown.map((members) => ({
      subject: members[0].rule,
      because: sentence(unique(members.map((cause) => cause.subject).filter(Boolean)), members[0].because),
      facts: unique(members.flatMap((cause) => cause.facts)).slice(0, limits.SUBJECTS_SHOWN + 2),
    }));
    for (const [rule, { length }] of byRule) {
      if (length <= limits.GROUPS_SHOWN) continue;
      reasons.push({ subject: rule, because: `${length - limits.GROUPS_SHOWN} more candidates fail likewise`, facts: [] });
    }
    return reasons;
  }

  function completeness(causes) {
    const rules = ["cuda", "gpu", "gpu-library", "driver", "platform"];
    const labels = causes.filter(({ row: [rule] }) => rules.includes(rule)).map(({ own }) => own?.label);
    const rows = tables.complete.filter(([version]) => labels.some((label) => label?.startsWith(`${version}+`)));
    if (!rows.length) return [];
    const because = rows.length === 1 ? "is known with all its builds" : "are known with all their builds";
    const facts = rows.map(([, fact]) => fact).slice(0, limits.SUBJECTS_SHOWN);
    return [{ subject: "complete", because: sentence(rows.map(([version]) => version), because), facts }];
  }

  function taken(core) {
    const found = tables.branches[core.driver];
    return found ? [{ subject: "driver release", because: found[1], facts: [found[2]] }] : [];
  }

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
