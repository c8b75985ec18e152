// The subset of Preact's types that the page uses, for `deno check`. Preact's own package contains the complete types.

export const createElement: (type: unknown, given?: unknown, ...children: unknown[]) => unknown;
export const Fragment: unknown;
export const render: (tree: unknown, into: Element) => void;
export class Component {
  props: any;
  setState(changed: unknown): void;
}
