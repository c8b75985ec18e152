// Shows the complete content of a key, value or header. Large content is loaded in pieces, JSON can be indented, and
// users can copy or download the content.

import { h, Part } from "./elements.js";
import { indented } from "./json_text.js";
import { size, whole } from "./text.js";

// Returns one line for a key, value or header. content: null, a number, {text} or {hex} (with the size if it is
// truncated), or the fields of an internal record.
export const brief = (content) => {
  if (content === null || content === undefined) return h("span", { class: "lead" }, "null");
  if (typeof content !== "object") return String(content);
  if ("hex" in content) return `0x ${content.hex}`;
  return "text" in content ? content.text : JSON.stringify(content);
};

const textOf = (pieces) => pieces.map((each) => each === null ? "" : each.text ?? each.hex).join("");

// where: the topic, partition and offset. of: the part of the record. shown: the content of this part in the list.
class Pieces extends Part {
  state = {
    pieces: [this.props.shown],
    next: this.props.shown?.size !== undefined ? 0 : null,
    isIndented: true,
    said: "",
  };

  componentDidMount() {
    if (this.state.next !== null) this.load();
  }

  address(path, given = {}) {
    return `${path}?${new URLSearchParams({ ...this.props.where, of: this.props.of, ...given })}`;
  }

  async load() {
    const { next, pieces } = this.state;
    const found = await (await fetch(this.address("/api/record", { from: next }))).json();
    if (found.error) return this.setState({ said: found.error });
    this.setState({ pieces: next ? [...pieces, found] : [found], next: found.next });
  }

  // Returns the complete content. If parts are missing, reads all of it in one request.
  async everything() {
    if (this.state.next === null) return this.state.pieces;
    const bytes = await (await fetch(this.address("/download"))).arrayBuffer();
    try {
      return [{ text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes) }];
    } catch {
      return [{ hex: [...new Uint8Array(bytes)].map((each) => each.toString(16).padStart(2, "0")).join(" ") }];
    }
  }

  async showAll() {
    this.setState({ pieces: await this.everything(), next: null });
  }

  async copy() {
    await toClipboard(textOf(await this.everything()));
    this.setState({ said: "copied" });
  }

  render() {
    const { shown, title } = this.props;
    const { pieces, next, isIndented, said } = this.state;
    if (shown === null || shown === undefined || typeof shown !== "object" || !("text" in shown || "hex" in shown)) {
      const text = shown && typeof shown === "object" ? JSON.stringify(shown, null, 2) : brief(shown);
      return [h("h2", {}, title), h("pre", {}, text)];
    }
    const isText = pieces.every((each) => "text" in each);
    const written = textOf(pieces);
    const lines = isText && next === null ? indented(written) : null;
    const act = (words, onClick) => h("button", { type: "button", class: "act", onClick }, words);
    return [
      h("h2", {}, title, shown.size ? ` (${size(shown.size)})` : ""),
      h("pre", { class: "whole", tabindex: 0 }, lines !== null && isIndented ? lines : written),
      h(
        "p",
        { class: "buttons" },
        next === null ? null : act(`More, from byte ${whole(next)}`, () => this.load()),
        next === null ? null : act("Show all", () => this.showAll()),
        act("Copy", () => this.copy()),
        h("a", { class: "act", href: this.address("/download"), download: "" }, "Download"),
        lines === null
          ? null
          : act(isIndented ? "As written" : "Indented", () => this.setState({ isIndented: !isIndented })),
        h("span", { role: "status" }, said),
      ),
    ];
  }
}

export const Content = Pieces;

// Returns one line for a key or value of the list: its JSON if the schema registry decodes it, or else its bytes.
export const briefly = (each, part) => {
  const schema = each[`${part}_schema`];
  return schema?.text !== undefined ? schema.text : brief(each[part]);
};

const named = (schema) =>
  schema.subject ? `${schema.subject} version ${schema.version} (${schema.type}, id ${schema.id})` : `id ${schema.id}`;

// A key or value whose bytes name a schema. Shows its JSON, and on demand the stored bytes. schema: the schema, with
// the start of the JSON that the list contains or the reason why the bytes cannot be decoded.
class OfSchema extends Part {
  state = { isStored: this.props.schema.error !== undefined && !this.props.schema.is_large };

  render() {
    const { title, where, of, shown, schema } = this.props;
    const { isStored } = this.state;
    const isRefused = schema.error !== undefined && !schema.is_large;
    const text = { text: schema.text ?? "", size: schema.text === undefined ? null : schema.size };
    const onClick = () => this.setState({ isStored: !isStored });
    const other = h(
      "p",
      { class: "buttons" },
      isStored ? `Stored bytes of schema ${named(schema)} ` : `Decoded by schema ${named(schema)} `,
      h("button", { type: "button", class: "act", onClick }, isStored ? "Decoded" : "Stored bytes"),
    );
    return [
      isStored
        ? h(Content, { key: "stored", title, where, of, shown })
        : h(Content, { key: "decoded", title, where: { ...where, decoded: true }, of, shown: text }),
      isRefused ? h("p", { class: "lead" }, `Not decoded by schema ${named(schema)}: ${schema.error}.`) : other,
    ];
  }
}

export const Decoded = OfSchema;

// The clipboard API exists only on pages that were loaded from this machine or over TLS.
const toClipboard = (text) => {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
};
