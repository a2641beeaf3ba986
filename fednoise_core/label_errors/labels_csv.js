"use strict";
// CSV as fednoise_core writes it: lines to text, and back. Knows nothing of the page.
const csv = (() => {
  const FORMULA = /^[=+\-@＝＋－＠\t\r\n']/; // as fednoise_core.io.safe_cell
  const CELL = /("(?:[^"]|"")*"|[^",\r\n]*)(,|\r\n|\n|\r|$)/y;

  const safe = (text) => (FORMULA.test(text) ? "'" + text : text);
  const plain = (text) => (text.startsWith("'") && FORMULA.test(text.slice(1)) ? text.slice(1) : text);
  const cell = (value) => (/[",\r\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);

  const write = (lines) =>
    lines.map((line) => line.map((value) => cell(typeof value === "number" ? String(value) : safe(value))).join(",") + "\n").join("");

  // [[line number, {column: text}], ...]; throws an Error that names the line
  function read(text, columns) {
    const lines = [];
    let cells = [], number = 1, began = 1;
    CELL.lastIndex = text.startsWith("\ufeff") ? 1 : 0;
    while (CELL.lastIndex < text.length) {
      const match = CELL.exec(text);
      if (!match) throw new Error(`line ${number}: no CSV`);
      const [all, value, end] = match;
      cells.push(plain(value.startsWith('"') ? value.slice(1, -1).replaceAll('""', '"') : value));
      number += all.split(/\r\n|\n|\r/).length - 1;
      if (end === "," && CELL.lastIndex < text.length) continue;
      if (end === ",") cells.push("");
      if (cells.length > 1 || cells[0] !== "") lines.push([began, cells]);
      [cells, began] = [[], number];
    }
    const head = lines.shift()?.[1] ?? [];
    const missing = columns.find((column) => !head.includes(column));
    if (missing !== undefined) throw new Error(`it has no column ${missing}`);
    return lines.map(([line, values]) => {
      if (values.length !== head.length) throw new Error(`line ${line}: ${values.length} cells for ${head.length} columns`);
      return [line, Object.fromEntries(head.map((column, i) => [column, values[i]]))];
    });
  }

  return { read, write };
})();
