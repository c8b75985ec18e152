// Indents JSON text without parsing it. JSON.parse would change 9007199254740993 and 10.00, and would drop a member
// whose name occurs twice. odradek/protocol/decoded/json_text.py does the same and is tested with the same cases.

const NUMBER = "-?(?:0|[1-9][0-9]*)(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?";
const TOKEN = new RegExp(`[ \\t\\n\\r]*(?:([{}[\\],:])|"|((?:${NUMBER}|true|false|null)(?![0-9a-zA-Z.+-])))`, "y");
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const STEP = "  ";
const DEEPEST = 20; // Deeper levels are kept on one line, because indentation could be far longer than the text.
// The states of the parser, as in the Python implementation.
const [VALUE, FIRST_VALUE, NAME, FIRST_NAME, COLON, AFTER] = [0, 1, 2, 3, 4, 5];

// Returns the offset after the string that starts at `at`, or -1 if the string is invalid.
const endOfString = (text, at) => {
  for (let end = at + 1; end < text.length; end++) {
    const code = text.charCodeAt(end);
    if (code === 34) return end + 1;
    if (code < 32) return -1;
    if (code === 92) {
      ESCAPE.lastIndex = end;
      if (!ESCAPE.test(text)) return -1;
      end = ESCAPE.lastIndex - 1;
    }
  }
  return -1;
};

// Returns a JSON object or array with a line for each member or element, or null if the text is neither of these.
export const indented = (text) => {
  if (!/^[ \t\n\r]*[[{]/.test(text)) return null;
  const parts = [];
  const inside = []; // the open brackets
  let wanted = VALUE;
  let at = 0;
  const newline = (depth) => depth <= DEEPEST ? `\n${STEP.repeat(depth)}` : "";
  do {
    TOKEN.lastIndex = at;
    const found = TOKEN.exec(text);
    if (!found) return null;
    at = TOKEN.lastIndex;
    const depth = inside.length;
    const sign = found[1];
    let token = sign ?? found[2];
    if (token === undefined) {
      const start = at - 1;
      at = endOfString(text, start);
      if (at < 0) return null;
      token = text.slice(start, at);
    }
    if (sign === ",") {
      if (wanted !== AFTER) return null;
      wanted = inside.at(-1) === "{" ? NAME : VALUE;
      parts.push(`,${newline(depth)}`);
    } else if (sign === ":") {
      if (wanted !== COLON) return null;
      wanted = VALUE;
      parts.push(": ");
    } else if (sign === "}" || sign === "]") {
      const isFirst = wanted === FIRST_VALUE || wanted === FIRST_NAME;
      if (!isFirst && wanted !== AFTER) return null;
      if (inside.pop() !== (sign === "}" ? "{" : "[")) return null;
      wanted = AFTER;
      parts.push(isFirst || depth > DEEPEST ? sign : `\n${STEP.repeat(depth - 1)}${sign}`);
    } else if (wanted === NAME || wanted === FIRST_NAME) {
      if (token[0] !== '"') return null;
      parts.push(wanted === FIRST_NAME ? newline(depth) + token : token);
      wanted = COLON;
    } else if (wanted === VALUE || wanted === FIRST_VALUE) {
      parts.push(wanted === FIRST_VALUE ? newline(depth) + token : token);
      wanted = AFTER;
      if (sign) {
        inside.push(sign);
        wanted = sign === "{" ? FIRST_NAME : FIRST_VALUE;
      }
    } else return null;
  } while (inside.length);
  return /^[ \t\n\r]*$/.test(text.slice(at)) ? parts.join("") : null;
};
