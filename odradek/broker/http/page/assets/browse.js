// Follows the records of a topic. The list grows at its end on demand, and whenever a new record is written.

const PAGE = 50;
const POLL_MS = 1000;
const LOST = new Error("The broker did not answer.");
const CATCH_UP = 4; // pages that a poll reads before it continues with the newest records
const MOST = 1000; // A longer list drops records at the end that is not growing.

const positions = (text) => Object.fromEntries(text.split(",").filter(Boolean).map((each) => each.split(":")));
const resuming = (found) => Object.entries(found).map(([partition, offset]) => `${partition}:${offset}`).join(",");

// changed: called with the facts of the view whenever they change, and with true if the user requested the change.
// lost: called when the broker does not respond. isHeld: returns whether the list must not follow new records.
// Returns an object whose `close` stops polling.
export const browse = (query, { changed, lost, isHeld }) => {
  const { find, ...rest } = query;
  const asked = { ...rest, ...(find ? { find } : {}) };
  let facts = null;
  let isClosed = false;
  let timer = null;
  const tell = (more, isAsked = true) => {
    facts = { ...facts, ...more };
    changed(facts, isAsked);
  };
  const ask = async (given) => {
    const answer = await fetch(`/api/records?${new URLSearchParams({ ...asked, ...given })}`).catch(() => {
      throw LOST;
    });
    return await answer.json();
  };
  // Continues until the list has grown by a page, no records are left, or the user stops the search.
  const further = async () => {
    const wanted = facts.records.length + PAGE;
    tell({ isLooking: true });
    try {
      while (!isClosed && facts.isLooking && !facts.is_done && facts.records.length < wanted) {
        const at = facts.next;
        const { error, ...found } = await ask({ order: facts.order, at });
        if (isClosed) return;
        if (error) return tell({ error });
        if (facts.next !== at) continue; // A poll or an earlier search has changed the end of the list.
        const { records, looked_at, next, is_done } = found;
        tell({
          records: [...facts.records, ...records],
          looked_at: facts.looked_at + looked_at,
          next,
          is_done,
        });
      }
    } finally { // The list must follow new records again, even if the broker did not answer.
      if (!isClosed) tell({ isLooking: false });
    }
  };
  const attempt = (work) =>
    work().catch((error) => {
      if (error !== LOST) throw error;
      if (!isClosed) lost();
    });
  const start = async () => {
    const found = await ask({});
    if (isClosed) return;
    facts = {
      ...found,
      isLooking: false,
      further: () => attempt(further),
      stop: () => tell({ isLooking: false }),
    };
    changed(facts, true);
    if (!found.error && !found.is_done && found.records.length < PAGE) await further();
  };
  // Fetches the records written since the last poll. Adds them at the start of the list if the order is newest first,
  // otherwise at the end.
  const follow = async () => {
    if (document.hidden || !facts || facts.error || facts.isLooking) return facts ? undefined : await start();
    if (isHeld()) return;
    const isNewest = facts.order === "newest";
    if (!isNewest && !facts.is_done) return changed(facts, false);
    const found = isNewest ? await newer() : await ask({ order: "oldest", at: facts.next });
    if (isClosed || !found) return;
    if (found.error) return tell({ error: found.error }, false);
    const { partitions } = found;
    const looked_at = facts.looked_at + found.looked_at;
    if (!isNewest) {
      const all = [...facts.records, ...found.records];
      const { next, is_done } = found;
      return tell({ partitions, looked_at, next, is_done, records: all.slice(-MOST) }, false);
    }
    const all = [...found.records.reverse(), ...facts.records];
    const next = positions(facts.next);
    for (const { partition, offset } of all.slice(MOST).reverse()) next[partition] = offset + 1;
    tell({
      partitions,
      looked_at,
      ends: found.next,
      next: resuming(next),
      is_done: facts.is_done && all.length <= MOST,
      records: all.slice(0, MOST),
    }, false);
  };
  // Fetches the records that are newer than the list. If there are too many, begins a new list with the newest records
  // instead, and returns nothing, because the list would otherwise lag behind a topic that grows quickly.
  const newer = async () => {
    const all = { records: [], looked_at: 0, next: facts.ends };
    for (let page = 0; page < CATCH_UP; page++) {
      const found = await ask({ order: "oldest", at: all.next });
      if (isClosed || found.error) return found;
      const records = [...all.records, ...found.records];
      Object.assign(all, found, { records, looked_at: all.looked_at + found.looked_at });
      if (found.records.length < PAGE) return all;
    }
    const found = await ask({});
    if (isClosed || found.error) return found;
    tell({ ...found, looked_at: facts.looked_at + all.looked_at + found.looked_at }, false);
  };
  const poll = () => {
    timer = setTimeout(() => attempt(follow).then(() => isClosed || poll()), POLL_MS);
  };
  attempt(start).then(() => isClosed || poll());
  return {
    close: () => {
      isClosed = true;
      clearTimeout(timer);
    },
  };
};
