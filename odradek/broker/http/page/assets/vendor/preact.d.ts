// The part of Preact that the page uses, for `deno check`. The real types are in Preact's own package.

export const createElement: (type: unknown, given?: unknown, ...children: unknown[]) => unknown;
export const Fragment: unknown;
export const render: (tree: unknown, into: Element) => void;
export class Component {
  props: any;
  setState(changed: unknown): void;
}
