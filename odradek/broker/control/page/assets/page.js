"use strict";
// The page: one view at a time, named by the part of the address behind "#", fed by server-sent events.

const NAV = [["overview", "Overview"], ["transactions", "Transactions"], ["topics", "Topics"], ["groups", "Groups"],
  ["shares", "Share partitions"], ["connections", "Connections"], ["warnings", "Warnings"]];
const SECTION = {topic: "topics", partition: "topics", records: "topics", group: "groups", transaction: "transactions"};
const STATES = {Ongoing: "wait", PrepareCommit: "wait", PrepareAbort: "wait", CompleteCommit: "good", CompleteAbort: "bad",
  Stable: "good", Empty: "", Dead: "bad", committed: "good", plain: "", aborted: "bad", open: "wait", control: "doubt",
  AVAILABLE: "", ACQUIRED: "wait", TX_PENDING: "doubt", ACKNOWLEDGED: "good", ARCHIVED: "bad", ERROR: "bad", CRITICAL: "bad", WARNING: "wait"};
const rates = [];  // samples of the overview, for its rates

// Building elements: text is always text, so nothing that a broker holds can become markup.
const h = (name, given = {}, ...children) => {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) if (value !== null && value !== undefined) element.setAttribute(key, value);
  element.append(...children.flat(9).filter(each => each !== null && each !== undefined && each !== false));
  return element;
};
const svg = (path, count) => {
  const picture = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  picture.setAttribute("class", "spark"); picture.setAttribute("aria-hidden", "true");
  picture.setAttribute("viewBox", `0 0 ${Math.max(count - 1, 1)} 30`); picture.setAttribute("preserveAspectRatio", "none");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path); picture.append(line);
  return picture;
};

// Words and numbers.
const whole = value => value === null || value === undefined ? "–" : Number(value).toLocaleString("en");
const rate = value => whole(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);
const size = bytes => {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]; let at = 0;
  while (bytes >= 1024 && at < 4) { bytes /= 1024; at++; }
  return `${at && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes).toLocaleString("en")} ${units[at]}`;
};
const span = ms => {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
};
const since = ms => ms === null || ms === undefined ? "–" : `${span(Date.now() - ms)} ago`;
const when = ms => {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms), two = n => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
};
const to = (view, given) => `#${view}${given ? "?" + new URLSearchParams(given) : ""}`;
const link = (text, view, given) => h("a", {href: to(view, given)}, text);
const tag = (text, kind) => h("span", {class: `tag ${kind ?? STATES[text] ?? ""}`}, text);
const part = name => { const at = name.lastIndexOf("-"); return [name.slice(0, at), name.slice(at + 1)]; };
const partitionLink = name => { const [topic, partition] = part(name); return link(name, "records", {topic, partition}); };

// Shapes that views share.
const title = (text, lead) => [h("h1", {}, text), lead ? h("p", {class: "lead"}, lead) : null];
const tile = (name, value, small, extra) => h("div", {class: "tile"}, h("dt", {}, name), h("dd", {}, value, small ? h("small", {}, small) : null, extra));
const empty = (...words) => h("p", {class: "empty"}, ...words);
const table = (label, columns, rows) => h("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": label}, h("table", {},
  h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", {scope: "col", class: kind}, name)))),
  h("tbody", {}, rows.map(row => h("tr", {}, row.map((cell, at) => h("td", {class: columns[at][1]}, cell)))))));
const find = (query, words) => {
  const field = h("input", {type: "search", id: "find", value: query.find ?? "", autocomplete: "off", spellcheck: "false"});
  field.addEventListener("input", () => { clearTimeout(find.timer); find.timer = setTimeout(() => go(route().view, {...route().query, find: field.value}), 250); });
  return h("form", {role: "search", onsubmit: "return false"}, h("label", {}, words, field));
};
const more = (total, shown) => total > shown ? h("p", {class: "lead"}, `${whole(shown)} of ${whole(total)} are shown: find the others by a part of their name.`) : null;
const content = value => {
  if (value === null || value === undefined) return h("span", {class: "lead"}, "null");
  if (typeof value !== "object") return String(value);
  if (!("text" in value) && !("hex" in value)) return h("pre", {}, JSON.stringify(value, null, 1));
  const cut = value.size ? ` … (${whole(value.size)} bytes)` : "";
  if ("hex" in value) return h("pre", {}, value.hex + cut);
  let text = value.text;
  if (/^\s*[[{]/.test(text) && !value.size) try { text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* as it is */ }
  return h("pre", {}, text + cut);
};
// Oldest first as it is given, latest first as it is shown.
const timeline = (steps, none) => {
  if (!steps.length) return empty(none);
  let before = null;
  return h("ol", {class: "line", reversed: ""}, steps.map(each => {
    const gap = before !== null && each.at_ms >= before ? `+${span(each.at_ms - before)}` : ""; before = each.at_ms;
    const where = each.by === "log" ? h("span", {class: "mono"}, each.last_offset > each.offset ? `${whole(each.offset)}–${whole(each.last_offset)}` : whole(each.offset)) : null;
    return h("li", {class: each.kind}, h("time", {datetime: new Date(each.at_ms).toISOString()}, when(each.at_ms)), gap ? h("time", {}, gap) : null,
      h("div", {}, where ? [where, " "] : null, each.id ? [link(each.id, "transaction", {id: each.id}), each.by === "coordinator" ? ", its coordinator: " : ": "] : null, each.what));
  }).reverse());
};
const heldNote = held => h("div", {class: "note"},
  h("p", {}, "Readers of committed data wait in ", partitionLink(held.partition), ` at offset ${whole(held.from_offset)}, before ${whole(held.records)} records, `,
    held.holder === null ? "for the end of a transaction." : held.holder.transactional_id === null
      ? `for producer id ${held.holder.producer_id}, which no coordinator knows.` : ["for ", link(held.holder.transactional_id, "transaction", {id: held.holder.transactional_id}), "."]),
  held.holder && held.holder.transactional_id === null ? h("p", {}, h("code", {}, "odradek transactions find-hanging")) : null);
const transactionRow = each => [link(each.id, "transaction", {id: each.id}), [tag(each.rank === 0 ? "in doubt" : each.state, each.rank === 0 ? "doubt" : undefined), each.is_kept ? [" ", tag("kept", "doubt")] : null],
  each.rank < 2 && each.started_ms ? [span(Date.now() - each.started_ms), each.timeout_ms ? h("div", {class: "age", title: `of ${span(each.timeout_ms)}`},
    Object.assign(h("i"), {style: `width:${Math.min(100, (Date.now() - each.started_ms) / each.timeout_ms * 100)}%`})) : null] : since(each.updated_ms),
  `${each.producer_id} / ${whole(each.producer_epoch)}`, each.partitions.length ? each.partitions.slice(0, 4).join(", ") + (each.partitions.length > 4 ? ` and ${each.partitions.length - 4} more` : "") : "–"];
const transactionColumns = [["transactional id", "name"], ["state"], ["open, or last change", "n"], ["producer id / epoch", "n"], ["partitions", "mono"]];

// What can be changed, where the broker allows it (TOKEN): a button, which opens a dialog, which has to be confirmed.
const button = (words, action) => {
  if (!TOKEN) return null;
  const element = h("button", {type: "button", class: "act"}, words);
  element.addEventListener("click", () => confirmed(typeof action === "function" ? action() : action));
  return element;
};
const field = ([name, words, given]) => h("label", {}, words, given.options
  ? h("select", {name}, given.options.map(each => h("option", {value: each}, each)))
  : h("input", {name, type: given.type ?? "text", min: given.min, placeholder: given.placeholder, value: given.value, required: given.required ? "" : null, autocomplete: "off", spellcheck: "false"}));
// title, words: what happens. fields: [name, words, attributes]. typed: what has to be typed before it is done. body: from the fields to what is sent. after: where to go.
const confirmed = ({action, title: heading, words, go: verb, fields = [], typed, body, after}) => {
  const dialog = document.getElementById("dialog"), said = h("p", {role: "status"});
  const name = typed ? h("input", {autocomplete: "off", spellcheck: "false", id: "typed"}) : null;
  const doIt = h("button", {type: "submit", class: "go danger"}, verb), cancel = h("button", {type: "button"}, "Cancel");
  const form = h("form", {}, h("h2", {id: "dialog-title"}, heading), h("p", {class: "lead"}, words), fields.map(field),
    name ? h("label", {}, `Type ${typed} to confirm`, name) : null, said, h("div", {class: "choice"}, cancel, doIt));
  if (name) { doIt.disabled = true; name.addEventListener("input", () => { doIt.disabled = name.value !== typed; }); }
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async event => {
    event.preventDefault();
    doIt.disabled = true; said.className = ""; said.textContent = "…";
    const given = body(Object.fromEntries(new FormData(form)));
    try {
      const answer = await fetch(`/api/actions/${action}`, {method: "POST", headers: {"Content-Type": "application/json", "X-Odradek-Token": TOKEN}, body: JSON.stringify(given)});
      const told = await answer.json();
      said.className = answer.ok ? "good" : "bad"; said.textContent = answer.ok ? told.done : `Refused: ${told.error}`;
      if (answer.ok) { doIt.remove(); cancel.textContent = "Close"; cancel.focus(); if (after) location.hash = after; return; }
    } catch (error) { said.className = "bad"; said.textContent = `The broker did not answer: ${error.message}`; }
    doIt.disabled = false;
  });
  dialog.replaceChildren(form);
  dialog.showModal();
};
const wholeOr = (given, other) => given === "" || given === undefined ? other : Number(given);
const endTransaction = view => view.rank > 1 ? null : view.rank === 0
  ? button("Force-terminate…", {action: "force-terminate", title: `Force-terminate ${view.id}`, go: "Force-terminate", typed: view.id, body: () => ({transactional_id: view.id}),
    words: "Aborts the transaction, even if the coordinator outside has decided to commit it: its records are lost then. Its producer is fenced."})
  : button("Abort…", {action: "abort", title: `Abort the transaction of ${view.id}`, go: "Abort", typed: view.id, body: () => ({transactional_id: view.id}),
    words: "Readers of committed data go on without its records. Its producer is fenced, and gets an error."});
const createTopic = {action: "create-topic", title: "Create a topic", go: "Create", words: "Partitions can be added later, not removed.",
  fields: [["topic", "Name", {required: true}], ["partitions", "Partitions", {type: "number", min: 1, placeholder: "num.partitions"}], ["configs", "Settings", {placeholder: "retention.ms=-1, …"}]],
  body: given => ({topic: given.topic, partitions: wholeOr(given.partitions, null), configs: Object.fromEntries(given.configs.split(/,\s*(?=[a-z.]+=)/).filter(Boolean).map(each => [each.slice(0, each.indexOf("=")).trim(), each.slice(each.indexOf("=") + 1).trim()]))})};
const deleteTopic = name => ({action: "delete-topic", title: `Delete topic ${name}`, go: "Delete", typed: name, body: () => ({topic: name}), after: "#topics",
  words: "Its records, and the offsets that groups have committed in it, cannot be had back."});
const deleteRecords = (name, each) => ({action: "delete-records", title: `Delete records of ${name}-${each.partition}`, go: "Delete", typed: `${name}-${each.partition}`,
  words: `Offsets ${whole(each.log_start_offset)} to ${whole(each.high_watermark)} are there.`, fields: [["before_offset", "Delete all before offset", {type: "number", min: 0, required: true, value: each.high_watermark}]],
  body: given => ({topic: name, partition: each.partition, before_offset: Number(given.before_offset)})});
const resetOffsets = view => ({action: "reset-offsets", title: `Reset offsets of ${view.id}`, go: "Reset", typed: view.id, words: "The group must have no members. It goes on where you say, within the bounds of the log.",
  fields: [["topic", "Topic", {required: true, value: view.offsets.length ? part(view.offsets[0].partition)[0] : ""}], ["partition", "Partition", {type: "number", min: 0, placeholder: "all"}],
    ["to", "To", {options: ["earliest", "latest", "offset", "timestamp"]}], ["at", "Offset, or time in ms", {type: "number", min: 0}]],
  body: given => ({group: view.id, topic: given.topic, partition: wholeOr(given.partition, null), ...(given.to === "offset" || given.to === "timestamp" ? {[given.to]: wholeOr(given.at, null)} : {to: given.to})})});

const VIEWS = {
  overview(view) {
    rates.push(view); if (rates.length > 60) rates.shift();
    const series = name => rates.slice(1).map((each, at) => Math.max(0, (each[name] - rates[at][name]) / Math.max(1, each.now_ms - rates[at].now_ms) * 1000));
    const trend = (name, words, show) => {
      const values = series(name), top = Math.max(...values, 1e-9);
      const path = values.map((value, at) => `${at ? "L" : "M"}${at} ${28 - value / top * 26}`).join("");
      return tile(words, values.length ? show(values.at(-1)) : "…", null, values.length > 1 ? svg(path, values.length) : null);
    };
    const txn = view.transactions, groups = view.groups;
    return [title("Overview", `${view.listeners.join(", ")} · data in ${view.data_directory}`),
      view.offline.length ? h("div", {class: "note bad"}, h("p", {}, `These partitions cannot be used: ${view.offline.join(", ")}. The log of the broker says why.`)) : null,
      txn && txn.in_doubt ? h("div", {class: "note doubt"}, h("p", {}, `${whole(txn.in_doubt)} in doubt: a coordinator outside decides. `, link("See which", "transactions"))) : null,
      h("dl", {class: "tiles"}, trend("requests_total", "requests/s", rate), trend("records_in_total", "records in/s", rate),
        trend("bytes_in_total", "in/s", size), trend("bytes_out_total", "out/s", size)),
      h("dl", {class: "tiles"},
        tile("open transactions", txn ? whole(txn.open) : "loading", txn && txn.oldest ? [`oldest for ${span(Date.now() - txn.oldest.since_ms)}: `, link(txn.oldest.id, "transaction", {id: txn.oldest.id})] : "no reader waits for one"),
        tile("groups", groups ? whole(groups.classic + groups.consumer + groups.share) : "loading", groups ? `${groups.classic} classic, ${groups.consumer} consumer, ${groups.share} share` : null),
        tile("topics", whole(view.topics), `${whole(view.partitions)} partitions, internal ones included`), tile("connections", whole(view.connections)),
        tile("logs", size(view.size_bytes), `${size(view.disk_free_bytes)} free`), tile("memory", size(view.memory_bytes), `up for ${span(view.now_ms - view.started_ms)}`),
        tile("warnings", whole(view.warnings), view.warnings ? link("read them", "warnings") : "none since the start")),
      h("h2", {}, "This broker"),
      h("dl", {class: "facts"}, [["version", view.version], ["cluster id", view.cluster_id], ["node id", view.node_id], ["features", Object.entries(view.features).map(([name, level]) => `${name} ${level}`).join(", ")]]
        .map(([name, value]) => [h("dt", {}, name), h("dd", {class: "mono"}, String(value))]))];
  },
  transactions(view, query) {
    return [title("Transactions", "What has to be decided comes first: in doubt, open, being written, ended."), view.loading ? h("div", {class: "note"}, h("p", {}, view.loading)) : null,
      view.held.map(heldNote), find(query, "Transactional id"),
      view.transactions.length ? [table("Transactions", transactionColumns, view.transactions.map(transactionRow)), more(view.total, view.transactions.length)]
        : empty(query.find ? "No id contains this." : ["No transactional id yet. A producer with ", h("code", {}, "transactional.id"), " makes one when it calls initTransactions."])];
  },
  transaction(view) {
    return [title(view.id, view.words), view.state ? h("p", {}, tag(view.rank === 0 ? "in doubt" : view.state, view.rank === 0 ? "doubt" : undefined)) : null,
      view.call ? h("div", {class: `note ${view.rank === 0 ? "doubt" : ""}`}, h("p", {}, view.rank === 0 ? "If its coordinator is gone for good, this aborts it whatever was decided outside:" : "To end it by hand, and let readers go on:"), h("p", {}, h("code", {}, view.call)), endTransaction(view)) : null,
      view.state ? h("dl", {class: "facts"}, [["producer id / epoch", `${view.producer_id} / ${whole(view.producer_epoch)}`], ["timeout", view.timeout_ms === null ? "none: two-phase commit" : span(view.timeout_ms)],
        ["open since", view.rank < 2 ? `${when(view.started_ms)} (${since(view.started_ms)})` : "–"], ["partitions", view.partitions.length ? view.partitions.map((name, at) => [at ? ", " : "", partitionLink(name)]) : "–"]]
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])) : null,
      h("h2", {}, "What happened, the latest first"), timeline(view.timeline ?? [], "Nothing of it is in the log any more.")];
  },
  topics(view, query) {
    return [title("Topics"), h("div", {class: "bar"}, find(query, "Name"), button("Create a topic…", createTopic)), view.topics.length ? [table("Topics", [["topic", "name"], ["partitions", "n"], ["records", "n"], ["size", "n"], ["written", "n"], ["read", "n"], ["held back", "n"]],
      view.topics.map(each => [[link(each.name, "topic", {name: each.name}), each.is_internal ? [" ", tag("internal")] : null], whole(each.partitions), whole(each.records), size(each.size_bytes), size(each.bytes_in_total), size(each.bytes_out_total),
        each.held_records ? tag(whole(each.held_records), "wait") : "–"])), more(view.total, view.topics.length)]
      : empty(query.find ? "No topic contains this." : ["No topic yet. ", h("code", {}, "odradek topics create orders --partitions 3"), " makes one, and so does the first record sent to it."])];
  },
  topic(view) {
    const own = view.settings.filter(each => each.source !== "DEFAULT");
    return [title(view.name, `topic id ${view.topic_id}`), view.partitions.map(each => each.held).filter(Boolean).map(heldNote),
      table("Partitions", [["partition", "n"], ["log start", "n"], ["last stable offset", "n"], ["high watermark", "n"], ["size", "n"], ["segments", "n"], ["leader epoch", "n"], ["producers", "n"], ["read"], ...(TOKEN && !view.is_internal ? [["change"]] : [])],
        view.partitions.map(each => [whole(each.partition), whole(each.log_start_offset), whole(each.last_stable_offset), whole(each.high_watermark), size(each.size_bytes), whole(each.segments), whole(each.leader_epoch), whole(each.producers),
          each.offline ? tag(each.offline, "bad") : [link("records", "records", {topic: view.name, partition: each.partition}), " ", link("timeline", "partition", {topic: view.name, partition: each.partition})],
          ...(TOKEN && !view.is_internal ? [button("Delete records…", deleteRecords(view.name, each))] : [])])),
      view.is_internal ? null : button("Delete topic…", deleteTopic(view.name)),
      h("h2", {}, "Settings of its own, or of this broker"), own.length ? table("Settings", [["setting", "name"], ["value", "mono"], ["source"]], own.map(each => [each.name, each.value ?? "–", each.source.toLowerCase().replace("_", " ")])) : empty("All settings have their defaults."),
      h("h2", {}, "All settings"), table("All settings", [["setting", "name"], ["value", "mono"], ["source"]], view.settings.map(each => [each.name, each.value ?? "–", each.source.toLowerCase().replace("_", " ")]))];
  },
  records(view, query) {
    const form = h("form", {}, h("label", {}, "From offset", h("input", {name: "offset", class: "short", inputmode: "numeric", value: query.offset ?? "", placeholder: "the last ones"})),
      h("label", {}, "or from time", h("input", {name: "time", type: "datetime-local", step: "1"})),
      h("label", {}, "Show", h("select", {name: "isolation"}, h("option", {value: "all"}, "everything"), h("option", {value: "committed", ...(query.isolation === "committed" ? {selected: ""} : {})}, "what readers of committed data see"))),
      h("button", {class: "go"}, "Show"));
    form.addEventListener("submit", event => { event.preventDefault(); const given = new FormData(form); const next = {topic: view.topic, partition: view.partition, isolation: given.get("isolation")};
      if (given.get("time")) next.timestamp = new Date(given.get("time")).getTime(); else if (given.get("offset") !== "") next.offset = given.get("offset"); go("records", next); });
    const step = (words, offset, on) => on ? [link(words, "records", {topic: view.topic, partition: view.partition, isolation: query.isolation ?? "all", offset}), " "] : null;
    return [title(`${view.topic}-${view.partition}`, ["Offsets ", whole(view.log_start_offset), " to ", whole(view.high_watermark), view.last_stable_offset < view.high_watermark ? `; readers of committed data get to ${whole(view.last_stable_offset)}` : "", ". ", link("The topic", "topic", {name: view.topic})]), form,
      view.records.length ? table("Records", [["offset", "n"], ["time"], ["what"], ["key", "mono"], ["value"], ["headers", "mono"]], view.records.map(each => [whole(each.offset), when(each.timestamp),
        [tag(each.control ? String(each.control) : each.status, each.control === "COMMIT" ? "good" : each.control === "ABORT" ? "bad" : STATES[each.status]), each.type ? h("div", {class: "mono"}, String(each.type)) : null, each.damage ? h("div", {}, each.damage) : null],
        content(each.key), each.data !== undefined ? content(each.data) : content(each.value), each.headers.length ? each.headers.map(([name, value]) => h("div", {}, `${name}: `, value && "text" in value ? value.text : content(value))) : "–"]))
        : empty("No records here."),
      h("p", {}, step("← earlier", Math.max(view.log_start_offset, view.start - 50), view.start > view.log_start_offset), step("later →", view.next, view.next < view.high_watermark), step("the last ones", "", view.next < view.high_watermark))];
  },
  partition(view, query) {
    const move = offset => link(`from ${whole(offset)}`, "partition", {topic: view.topic, partition: view.partition, offset});
    const back = view.start - (view.next - view.start);
    return [title(`${view.topic}-${view.partition}`, "What its log holds, and what coordinators decided of it."), view.held ? heldNote(view.held) : null,
      h("dl", {class: "facts"}, [["log start offset", whole(view.log_start_offset)], ["last stable offset", whole(view.last_stable_offset)], ["high watermark", whole(view.high_watermark)], ["leader epoch", whole(view.leader_epoch)],
        ["shown", [`offsets ${whole(view.start)} to ${whole(view.next)} `, view.start > view.log_start_offset ? [move(Math.max(view.log_start_offset, back)), " "] : null, view.next < view.high_watermark ? move(view.next) : null]], ["records", link("read them", "records", {topic: view.topic, partition: view.partition})]]
        .map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
      h("h2", {}, "What happened, the latest first"), timeline(view.timeline, "No record is here.")];
  },
  groups(view, query) {
    return [title("Groups"), find(query, "Group id"), view.groups.length ? [table("Groups", [["group", "name"], ["type"], ["state"], ["partitions with offsets", "n"], ["lag", "n"]],
      view.groups.map(each => [link(each.id, "group", {id: each.id}), each.type, tag(each.state), whole(each.partitions), whole(each.lag)])), more(view.total, view.groups.length)]
      : empty(query.find ? "No group contains this." : ["No group yet. ", h("code", {}, "odradek consume -G mygroup orders"), " makes one."])];
  },
  group(view) {
    return [title(view.id, `${view.type} group${view.epoch === null ? "" : `, epoch ${view.epoch}`}${view.assignor ? `, assigned by ${view.assignor}` : ""}`), h("p", {}, tag(view.state)),
      h("h2", {}, "Members"), view.members.length ? table("Members", [["member", "name"], ["client"], ["from", "mono"], ["epoch", "n"], ["partitions", "mono"]],
        view.members.map(each => [[each.id, each.instance ? [" ", tag(`static: ${each.instance}`)] : null], each.client, each.host, whole(each.epoch), each.partitions.join(", ") || "none"])) : empty("Nobody is in this group now."),
      h("h2", {}, "Committed offsets"), button("Reset offsets…", resetOffsets(view)), view.offsets.length ? table("Offsets", [["partition", "name"], ["committed", "n"], ["end", "n"], ["lag", "n"], ["committed at"]],
        view.offsets.map(each => [partitionLink(each.partition), whole(each.committed), whole(each.end), whole(each.lag), when(each.committed_ms)])) : empty(view.type === "share" ? ["A share group commits no offsets: see ", link("its share partitions", "shares", {find: view.id}), "."] : "None yet."),
      h("h2", {}, "What happened, the latest first"), timeline(view.history, "Nothing of it is in the log any more.")];
  },
  shares(view, query) {
    return [title("Share partitions", "Records in flight, by state. A share partition appears once a member fetches from it."), find(query, "Group id"),
      view.partitions.length ? [table("Share partitions", [["group", "name"], ["partition", "name"], ["start", "n"], ["next", "n"], ["behind", "n"], ["states"], ["deliveries", "mono"], ["in flight"]],
        view.partitions.map(each => [link(each.group, "group", {id: each.group}), partitionLink(each.partition), whole(each.start_offset), whole(each.next_offset), each.next_offset === undefined ? tag(each.failure ?? each.phase, "wait") : whole(each.high_watermark - each.next_offset),
          h("div", {class: "ranges"}, Object.entries(each.states ?? {}).map(([state, count]) => tag(`${state} ${whole(count)}`, STATES[state]))), Object.entries(each.deliveries ?? {}).map(([times, count]) => `${whole(count)} × ${times}`).join(", ") || "–",
          h("div", {class: "ranges"}, (each.ranges ?? []).slice(0, 12).map(one => h("span", {class: `tag ${STATES[one.state]}`, title: `${one.state}, delivered ${one.deliveries} times${one.member ? `, by ${one.member}` : ""}${one.lock_until_ms ? `, lock until ${when(one.lock_until_ms)}` : ""}`},
            one.first === one.last ? whole(one.first) : `${whole(one.first)}–${whole(one.last)}`)))])), more(view.total, view.partitions.length)] : empty("No share partition is in use. A share consumer of any client makes the first.")];
  },
  connections(view, query) {
    return [title("Connections", Object.entries(view.software).map(([name, count]) => `${whole(count)} × ${name}`).join(" · ")), find(query, "Address or software"),
      view.connections.length ? [table("Connections", [["from", "mono"], ["software", "name"], ["version"], ["listener"], ["principal"], ["was told to use", "mono"]],
        view.connections.map(each => [each.from, each.software, each.version, each.listener, each.principal, each.told ?? "–"])), more(view.total, view.connections.length)] : empty("Nobody is connected.")];
  },
  warnings(view) {
    return [title("Warnings", "What the log of this process had at WARN and above, the latest first."), view.warnings.length
      ? table("Warnings", [["time"], ["level"], ["logger", "mono"], ["text"]], view.warnings.map(each => [when(each.at_ms), tag(each.level), each.logger, h("pre", {}, each.text)])) : empty("None since the start.")];
  },
};

// The route, and the stream that feeds it.
const route = () => { const [view, query] = decodeURI(location.hash.slice(1)).split("?"); return {view: view in VIEWS ? view : "overview", query: Object.fromEntries(new URLSearchParams(location.hash.split("?")[1] ?? query ?? ""))}; };
const go = (view, given) => { location.hash = to(view, Object.fromEntries(Object.entries(given).filter(([, value]) => value !== "" && value !== undefined))); };
const main = document.getElementById("main"), live = document.getElementById("live"), words = document.getElementById("live-words");
let stream = null;

const marks = () => [...main.querySelectorAll("a, button, .scroll")];  // what can have the focus, or be scrolled: stays so
const paint = (name, query, view) => {
  const focused = document.activeElement && document.activeElement.id === "find" ? document.activeElement.selectionStart : null;
  const active = main.contains(document.activeElement) ? document.activeElement : null;
  if (active && active.closest("form") && focused === null) return;  // somebody is filling in a form
  const kept = marks().map(each => [each.scrollLeft, each === active]);
  main.replaceChildren(...(view.error ? [title("Not found", view.error)].flat() : VIEWS[name](view, query)).flat(9).filter(Boolean));
  if (kept.length === marks().length) marks().forEach((each, at) => { each.scrollLeft = kept[at][0]; if (kept[at][1]) each.focus({preventScroll: true}); });
  if (focused !== null) { const field = document.getElementById("find"); if (field) { field.focus(); field.setSelectionRange(focused, focused); } }
  document.title = `${main.querySelector("h1").textContent} – Odradek`;
};
const show = () => {
  const {view, query} = route();
  document.getElementById("nav").replaceChildren(...NAV.map(([name, text]) => h("a", {href: `#${name}`, "aria-current": (SECTION[view] ?? view) === name ? "page" : null}, text)));
  if (stream) stream.close();
  stream = new EventSource(`/live/${view}?${new URLSearchParams(query)}`);
  stream.onmessage = event => { live.className = "on"; words.textContent = "live"; paint(view, query, JSON.parse(event.data)); };
  stream.onerror = () => { live.className = ""; words.textContent = "not connected: the broker is away, or starting"; };
};
addEventListener("hashchange", () => { show(); main.focus({preventScroll: true}); scrollTo(0, 0); });
addEventListener("keydown", event => { if (event.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { const field = document.getElementById("find"); if (field) { field.focus(); event.preventDefault(); } } });
if (FIRST && route().view === "overview") paint("overview", {}, FIRST);
show();
