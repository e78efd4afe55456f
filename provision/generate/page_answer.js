// Answers a question by looking its cells up in the tables of provision/resolve/survey.py, in the solver's order.
// Nothing is decided here: which candidates there are, their order, what excludes them and in which words, what an
// environment holds and which changes are tried all come from the tables. A test holds the answers against the solver.
"use strict";

// eslint-disable-next-line no-unused-vars
function makeAsker(tables) {
  const FRAMEWORKS = ["torch", "tensorflow", "jax"];
  const OWN_FACT = -1;
  const GPU_FACT = -2;

  const compare = (left, right) => {
    const a = left.split("."), b = right.split(".");
    for (let i = 0; i < Math.max(a.length, b.length); i++) {
      const difference = Number(a[i] || 0) - Number(b[i] || 0);
      if (difference) return difference;
    }
    return 0;
  };
  const branchOf = (driver) => Number(driver.split(".")[0]);
  // A branch stands for its newest known release.
  const releaseOf = (driver) => (driver != null && tables.branches[driver] ? tables.branches[driver][0] : driver);

  const unpack = (row, position) => {
    for (let i = 1; i < row.length; i += 2) if (row[i] === position) return row[i + 1];
    return row[0];
  };
  const cell = (rowNumber, position) => (rowNumber < 0 ? [] : tables.cells[tables.rows[rowNumber][position]]);

  function attempt(request) {
    const kind = FRAMEWORKS.find((name) => request[name] != null) || "cuda";
    const gpu = request.gpus == null ? null : tables.gpus[request.gpus];
    const classNumber = gpu ? gpu[5] : -1;
    const gpuClass = gpu ? tables.classes[classNumber] : null;
    const platform = request.platform || tables.platforms[gpuClass ? gpuClass.platform : 0];
    const systemNumber = request.os == null ? 0 : 1 + tables.systems.findIndex((row) => row[0] === request.os);
    const cudaNumber = request.cuda == null ? -1 : tables.cudas.indexOf(request.cuda);
    const pythonNumber = request.python == null ? -1 : tables.pythons.findIndex((row) => row[0] === request.python);
    const driver = releaseOf(request.driver);
    const branch = driver == null ? null : branchOf(driver);
    const names = {
      "\x01": gpu ? gpu[0] : "", "\x02": driver || "", "\x03": request.python || "", "\x04": "",
      "\x05": request.os || "",
    };
    const say = (number, own) =>
      tables.texts[number].replace(/[\x01-\x05]/g, (mark) => (mark === "\x04" ? own : names[mark]));

    const rejection = (number, candidate) => {
      const [rule, isProved, subject, text, facts] = tables.rejections[number];
      const kindName = candidate ? ["torch", "tensorflow", "jax", "cuda"][candidate.kind] : "";
      return {
        rule,
        isProved: Boolean(isProved),
        subject: subject === 0 || !candidate ? "" : subject === 1 ? candidate.label : `${kindName} ${candidate.version}`,
        version: candidate ? `${kindName} ${candidate.version}` : "",
        because: say(text, candidate ? candidate.label : ""),
        facts: resolveFacts(facts, candidate, gpu),
      };
    };

    const unfit = [];
    if (gpu) {
      for (const number of gpuClass.wish[tables.platforms.indexOf(platform)]) unfit.push(rejection(number, null));
      if (branch !== null) {
        if (gpuClass.last && branch > gpuClass.last[0]) unfit.push(rejection(gpuClass.last[1], null));
        if (gpuClass.first && branch < gpuClass.first[0]) unfit.push(rejection(gpuClass.first[1], null));
      }
    }
    if (unfit.length) return { rejections: unfit };

    const wish = kind === "cuda" ? request.cuda || tables.any : request[kind];
    const offered = tables.offers[platform][kind][wish];
    if (typeof offered !== "number") return { rejections: [rejection(offered.none, null)] };
    const candidates = tables.rows[offered].map((number) => tables.candidates[platform][number]);

    const rejections = [];
    const kept = [];
    for (const candidate of candidates) {
      const found = [...tables.cells[candidate.fixed]];
      if (kind !== "cuda" && cudaNumber >= 0) found.push(...cell(candidate.cuda, cudaNumber));
      if (gpu) found.push(...cell(candidate.gpu, classNumber));
      if (gpu && candidate.older && cudaNumber in candidate.older) {
        found.push(...cell(candidate.older[cudaNumber], classNumber));
      }
      found.push(...cell(candidate.os, systemNumber));
      if (branch !== null && candidate.driver) {
        if (compare(driver, candidate.driver[0]) < 0) found.push(...tables.cells[candidate.driver[1]]);
        else if (gpu && branch < candidate.branch) found.push(...cell(candidate.jit, classNumber));
      }
      if (!found.length) {
        kept.push(candidate);
        continue;
      }
      found.sort((left, right) => left[0] - right[0]);
      const proved = found.find(([, number]) => tables.rejections[number][1]);
      rejections.push(rejection((proved || found[0])[1], candidate));
    }
    const keptVersions = new Set(kept.map((candidate) => candidate.version));
    const seen = new Set();
    const ends = [];
    for (const candidate of candidates) {
      if (!candidate.open.length || seen.has(candidate.version)) continue;
      seen.add(candidate.version);
      if (keptVersions.has(candidate.version)) continue;
      const name = `${kind} ${candidate.version}`;
      if (rejections.every((item) => item.version !== name || item.rule === "os")) continue;
      for (const number of candidate.open) ends.push(rejection(number, candidate));
    }
    rejections.push(...ends);

    for (const candidate of kept) {
      const pair = cell(candidate.pair, classNumber + 1);
      if (pair.length) {
        rejections.push(rejection(pair[0][1], candidate));
        continue;
      }
      let positions = [...candidate.pythons.slice(0, candidate.order).keys()];
      if (request.python != null) {
        const position = pythonNumber < 0 ? -1 : candidate.pythons.indexOf(pythonNumber);
        positions = position < 0 ? [] : [position];
      }
      if (!positions.length) {
        rejections.push(rejection(candidate.no_python, candidate));
        continue;
      }
      const held = (candidate.held && candidate.held[classNumber]) || "";
      const environments = candidate.environments[cudaNumber + held] || candidate.environments[held];
      const bases = held ? candidate.held_bases[held] : candidate.bases;
      for (const position of positions) {
        const standNumber = unpack(tables.rows[bases[position]], systemNumber);
        if (standNumber < 0) {
          rejections.push(rejection(~standNumber, candidate));
          continue;
        }
        const stand = tables.stands[standNumber];
        const steps = tables.rows[environments[position]];
        const number = steps.length === 1 ? steps[0] : steps[stand[3]];
        if (number < 0) {
          rejections.push(rejection(~number, candidate));
          continue;
        }
        const environment = tables.environments[number];
        const need = tables.needs[tables.rows[candidate.need[environment[0]]][classNumber + 1]];
        const python = candidate.pythons[position] < 0 ? null : tables.pythons[candidate.pythons[position]][0];
        return {
          stack: assemble(request, platform, kind, candidate, python, stand, environment, need, gpu, say),
        };
      }
    }
    return { rejections };
  }

  function resolveFacts(facts, candidate, gpu) {
    return facts.map((fact) => (fact === OWN_FACT ? candidate.fact : fact === GPU_FACT ? gpu[6] : fact));
  }

  function assemble(request, platform, kind, candidate, python, stand, environment, need, gpu, say) {
    const [cuda, cudnn, nccl, packageRow, size, install, reasons, warnings] = environment;
    const packages = Object.fromEntries(tables.rows[packageRow].map((number) => tables.packages[number]));
    const worded = [...need[4], ...reasons, ...stand[6]].map(([subject, text, facts]) => ({
      subject: subject.replaceAll("\x01", gpu ? gpu[0] : ""),
      because: say(text, candidate.label),
      facts: resolveFacts(facts, candidate, gpu),
    }));
    const ofDriver = worded.find((reason) => reason.subject === "driver");
    if (ofDriver) for (const { because } of taken(request)) ofDriver.because += `; ${because}`;
    const facts = [candidate.fact, ...worded.flatMap((reason) => reason.facts)];
    if (gpu) facts.push(gpu[6]);
    if (request.os != null) facts.push(tables.systems.find((row) => row[0] === request.os)[2]);
    return {
      kind,
      framework: kind === "cuda" ? null : kind,
      version: candidate.version,
      label: candidate.label,
      cuda,
      cudnn: stand[4] || cudnn,
      nccl: stand[5] || nccl,
      python,
      platform,
      os: request.os == null ? stand[2] : request.os,
      packages,
      base: stand[0] ? stand[0][0] : null,
      baseSize: stand[0] ? stand[0][1] : null,
      cudaBase: stand[1],
      driver: { minimum: need[0], recommended: need[1], native: need[2], maximum: need[3] },
      sm: need[6][0],
      ptx: need[6][1],
      size,
      install: install < 0 ? null : tables.rows[install].map((number) => tables.texts[number]).join(" "),
      reasons: worded,
      warnings: [
        ...insecure(releaseOf(request.driver)),
        ...[...need[5], ...stand[7], ...warnings].map((text) => say(text, candidate.label)),
      ],
      facts: [...new Set(facts)],
    };
  }

  function insecure(driver) {
    if (driver == null) return [];
    const { below, last, old } = tables.security;
    const branch = branchOf(driver);
    const floor = below[branch];
    if (floor) {
      return compare(driver, floor[0]) < 0 ? [tables.texts[floor[1]].replaceAll("\x02", driver)] : [];
    }
    return branch < last ? [tables.texts[old].replaceAll("\x02", String(branch))] : [];
  }

  const isProved = (rejections) => rejections.length > 0 && rejections.every((item) => item.isProved);

  function smallest(request, wasProved) {
    const isStillRefused = (fewer) => {
      const found = attempt(fewer).rejections;
      return Boolean(found) && (!wasProved || isProved(found));
    };
    let core = request;
    for (const part of tables.parts) {
      if (core[part] == null) continue;
      const fewer = { ...core, [part]: null };
      if (part === "gpus") {
        if (isStillRefused(fewer)) core = fewer;
        continue;
      }
      const isLast = FRAMEWORKS.includes(part) && FRAMEWORKS.every((name) => name === part || core[name] == null);
      if (isLast && (attempt(core).rejections || []).some((item) => item.subject)) continue;
      const isEmpty = tables.parts.every((name) => fewer[name] == null);
      if (!isEmpty && isStillRefused(fewer)) core = fewer;
    }
    return core;
  }

  const FLAGS = ["torch", "tensorflow", "jax", "cuda", "python", "os", "platform", "gpus", "driver"];
  function toFlags(request) {
    const words = [];
    for (const part of FLAGS) {
      if (request[part] == null) continue;
      // A GPU that the tables do not know goes by the name it was asked with.
      const value = part === "gpus" ? (tables.gpus[request.gpus]?.[1] ?? request.gpus) : request[part];
      words.push(part === "gpus" ? "--gpu" : `--${part}`, value);
    }
    return words;
  }
  const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);
  const toCommand = (command, request) => ["provision", command, ...toFlags(request)].map(quote).join(" ");

  function sentence(subjects, because) {
    if (!subjects.length) return because;
    if (subjects.length === 1) return `${subjects[0]} ${because}`;
    const first = `${subjects[0].split(" ")[0]} `;
    let names = subjects;
    if (subjects.every((subject) => subject.startsWith(first))) {
      names = [subjects[0], ...subjects.slice(1).map((subject) => subject.slice(first.length))];
    }
    const most = tables.limits.subjects;
    const joined =
      names.length > most
        ? `${names.slice(0, most - 1).join(", ")} and ${names.length - most + 1} more`
        : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
    const [verb, ...rest] = because.split(" ");
    return `${joined} ${tables.plural[verb] || verb} ${rest.join(" ")}`;
  }

  function chain(causes) {
    const groups = new Map();
    for (const cause of causes) {
      const key = JSON.stringify([cause.rule, cause.because, cause.isProved]);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(cause);
    }
    const said = new Map();
    const reasons = [];
    for (const members of groups.values()) {
      const { rule, because } = members[0];
      said.set(rule, (said.get(rule) || 0) + 1);
      if (said.get(rule) > tables.limits.groups) continue;
      const subjects = [...new Set(members.map((member) => member.subject).filter(Boolean))];
      const facts = [...new Set(members.flatMap((member) => member.facts))];
      reasons.push({
        subject: rule, because: sentence(subjects, because), facts: facts.slice(0, tables.limits.subjects + 2),
      });
    }
    for (const [rule, count] of said) {
      if (count > tables.limits.groups) {
        const more = count - tables.limits.groups;
        reasons.push({ subject: rule, because: `${more} more candidates fail likewise`, facts: [] });
      }
    }
    return reasons;
  }

  function completeness(causes) {
    const rules = ["cuda", "gpu", "gpu-library", "driver", "platform"];
    const versions = new Set(causes.filter((cause) => rules.includes(cause.rule)).map((cause) => cause.version));
    const rows = tables.complete.filter(([version]) => versions.has(`torch ${version}`));
    if (!rows.length) return [];
    const because = rows.length === 1 ? "is known with all its builds" : "are known with all their builds";
    const facts = rows.map(([, fact]) => fact).slice(0, tables.limits.subjects);
    return [{ subject: "complete", because: sentence(rows.map(([version]) => `torch ${version}`), because), facts }];
  }

  function taken(core) {
    const found = core.driver == null ? null : tables.branches[core.driver];
    return found ? [{ subject: "driver release", because: tables.texts[found[1]], facts: [found[2]] }] : [];
  }

  function* changes(part, request) {
    const put = (value, change) => [{ ...request, [part]: value }, change];
    if (FRAMEWORKS.includes(part)) {
      for (const value of tables.near[part][request[part]]) yield put(value, `${part} ${value}`);
    } else if (part === "cuda") {
      for (const value of tables.near.cuda[request.cuda]) yield put(value, `CUDA ${value}`);
    } else if (part === "python") {
      for (const value of tables.near.python[request.python]) yield put(value, `Python ${value}`);
    } else if (part === "driver") {
      const known = tables.near.driver;
      for (const value of known) if (compare(value, request.driver) > 0) yield put(value, `driver ${value}`);
      for (const value of [...known].reverse()) {
        if (compare(value, request.driver) < 0) yield put(value, `driver ${value}`);
      }
    } else if (part === "platform") {
      for (const value of tables.near.platform) yield put(value, `on ${value}`);
    } else if (part === "os") {
      yield put(null, `without --os ${request.os}`);
    }
  }

  function alternatives(request, core) {
    const found = [];
    let trials = 0;
    const queues = tables.parts.filter((part) => core[part] != null).map((part) => changes(part, request));
    queues.reverse();
    const solved = new Set();
    while (queues.length && trials < tables.limits.trials && found.length < tables.limits.alternatives) {
      for (const [number, queue] of queues.entries()) {
        if (solved.has(number) || found.length >= tables.limits.alternatives) continue;
        const next = queue.next();
        if (next.done) {
          solved.add(number);
          continue;
        }
        trials += 1;
        const [changed, change] = next.value;
        if (attempt(changed).rejections) continue;
        const command = toCommand("resolve", changed);
        if (found.every((other) => other.command !== command)) found.push({ request: changed, command, change });
        solved.add(number);
      }
      if (solved.size === queues.length) break;
    }
    return found.length ? found : pairs(request, core);
  }

  // Two parts changed at once, where no single change does: for each pair the nearest that works.
  function pairs(request, core) {
    const found = [];
    let trials = 0;
    const first = (part) => {
      const values = [];
      for (const value of changes(part, request)) if (values.push(value) >= tables.limits.near) break;
      return values;
    };
    const parts = tables.parts.filter((part) => request[part] != null).reverse();
    for (let i = 0; i < parts.length; i++) {
      for (let j = i + 1; j < parts.length; j++) {
        if (core[parts[i]] == null && core[parts[j]] == null) continue;
        const lefts = first(parts[i]), rights = first(parts[j]);
        search: for (let distance = 0; distance < lefts.length + rights.length - 1; distance++) {
          for (let index = 0; index < lefts.length; index++) {
            const right = rights[distance - index];
            if (!right) continue;
            if (trials >= tables.limits.pairs || found.length >= tables.limits.alternatives) return found;
            trials += 1;
            const changed = { ...right[0], [parts[i]]: lefts[index][0][parts[i]] };
            if (attempt(changed).rejections) continue;
            const change = `${lefts[index][1]} and ${right[1]}`;
            found.push({ request: changed, command: toCommand("resolve", changed), change });
            break search;
          }
        }
      }
    }
    return found;
  }

  function words(request) {
    const flags = toFlags(request);
    return flags.filter((_, i) => i % 2 === 0).map((flag, i) => `${flag} ${flags[2 * i + 1]}`);
  }

  // A question: one framework at most (its version, or the wish that any meets), and what else is asked.
  function ask(request) {
    const found = attempt(request);
    if (found.stack) {
      const { stack } = found;
      const exact = { ...request };
      if (stack.framework) exact[stack.framework] = stack.version;
      else exact.cuda = stack.version;
      return { verdict: "works", exit: 0, stack, request: exact };
    }
    const core = smallest(request, isProved(found.rejections));
    const causes = attempt(core).rejections || found.rejections;
    const proved = isProved(causes);
    return {
      verdict: proved ? "refused" : "unknown",
      exit: proved ? 3 : 4,
      core,
      conflict: words(core),
      because: [...chain(causes), ...(proved ? completeness(causes) : []), ...taken(core)],
      alternatives: alternatives(request, core),
    };
  }

  const verdict = (request) => {
    const found = attempt(request);
    return found.stack ? "works" : isProved(found.rejections) ? "refused" : "unknown";
  };

  return { ask, verdict, toCommand, compare };
}
