// Formats numbers, sizes and times for people. A missing value becomes a dash.

const isMissing = (value) => value === null || value === undefined;
export const whole = (value) => isMissing(value) ? "–" : Number(value).toLocaleString("en");
export const count = (value, one, many) => `${whole(value)} ${value === 1 ? one : many ?? `${one}s`}`;
export const rate = (value) => whole(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);

export const size = (bytes) => {
  if (isMissing(bytes)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < 4) {
    bytes /= 1024;
    at++;
  }
  return `${at && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes).toLocaleString("en")} ${units[at]}`;
};

export const span = (ms) => {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor(s % 86400 / 3600)} h`;
};
// now_ms: the current time of the broker's clock, because `ms` is from the same clock. The browser's clock may differ.
export const since = (ms, now_ms) => isMissing(ms) ? "–" : `${span(now_ms - ms)} ago`;

export const when = (ms) => {
  if (isMissing(ms) || ms < 0) return "–";
  const at = new Date(ms);
  const digits = (number, count = 2) => String(number).padStart(count, "0");
  const day = `${at.getFullYear()}-${digits(at.getMonth() + 1)}-${digits(at.getDate())}`;
  const second = `${digits(at.getHours())}:${digits(at.getMinutes())}:${digits(at.getSeconds())}`;
  return `${day} ${second}.${digits(at.getMilliseconds(), 3)}`;
};
