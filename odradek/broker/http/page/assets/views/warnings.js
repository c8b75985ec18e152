import { empty, h, tag, title } from "../elements.js";
import { table } from "../table.js";
import { when } from "../text.js";

const COLUMNS = [["time", "", "at_ms"], ["level", "", "level"], ["logger", "mono", "logger"], ["text"]];

export const warnings = (view) => [
  title("Warnings", "Entries at WARN and above in the log of this process, latest first."),
  view.warnings.length ? table("Warnings", COLUMNS, view.warnings, row, keyOf) : empty("No warnings since the start."),
];

const keyOf = (each) => `${each.at_ms} ${each.text}`;
const row = (each) => [when(each.at_ms), tag(each.level), each.logger, h("pre", {}, each.text)];
