// Charts as SVG. Colours are classes (`k0`, `k1`, …), so that they follow the theme.

const WIDTH = 640;
const HEIGHT = 190;
const LEFT = 58;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;

/** Makes an element of HTML; children may be texts. */
export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let place = 0;
  while (count >= 1000 && place < units.length - 1) [count, place] = [count / 1024, place + 1];
  return `${number(count)} ${units[place]}`;
}

export function number(count) {
  if (!Number.isFinite(count)) return "–";
  if (count !== 0 && Math.abs(count) < 10) return count.toLocaleString("en", { maximumFractionDigits: 1 });
  return Math.round(count).toLocaleString("en");
}

export function percent(part) {
  return Number.isFinite(part) ? `${(part * 100).toFixed(part > 0.999 && part < 1 ? 2 : 1)}%` : "–";
}

export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${number(seconds / 3600)} h`;
  return `${number(seconds / 86400)} d`;
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

export function legend(series, show) {
  return element(
    "div",
    { class: "legend" },
    ...series.map((one, i) =>
      element(
        "span",
        {},
        element("i", { class: `k${i}` }),
        `${one.name} `,
        element("b", {}, show(one.values.at(-1) ?? 0)),
      ),
    ),
  );
}

/**
 * Draws series over time, stacked or as lines, with a legend of the latest values.
 *
 * @param {number[]} times Unix times in seconds
 * @param {{name: string, values: number[]}[]} series
 * @param {{show: (value: number) => string, isStacked?: boolean, most?: number, limit?: number}} options
 */
export function overTime(times, series, { show, isStacked = false, most, limit }) {
  const tops = times.map((_, i) => {
    const values = series.map((one) => one.values[i]).filter(Number.isFinite);
    return isStacked ? values.reduce((sum, value) => sum + value, 0) : Math.max(0, ...values);
  });
  const top = most ?? rounded(Math.max(...tops, limit && limit < 2 * Math.max(...tops) ? limit : 0, 1e-9));
  const x = (i) => LEFT + ((WIDTH - LEFT - RIGHT) * i) / Math.max(1, times.length - 1);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * Math.min(value, top)) / top;
  const svg = drawn("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    role: "img",
    "aria-label": series.map((one) => one.name).join(", "),
  });
  for (const part of [0, 0.5, 1]) {
    svg.append(
      drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(top * part), y2: y(top * part) }),
      drawn("text", { x: LEFT - 6, y: y(top * part) + 4, "text-anchor": "end" }, show(top * part)),
    );
  }
  for (const i of [0, Math.floor((times.length - 1) / 2), times.length - 1]) {
    const anchor = i === 0 ? "start" : i === times.length - 1 ? "end" : "middle";
    svg.append(drawn("text", { x: x(i), y: HEIGHT - 6, "text-anchor": anchor }, clock(times[i])));
  }
  let below = times.map(() => 0);
  series.forEach((one, place) => {
    if (isStacked) {
      const above = below.map((sum, i) => sum + (one.values[i] || 0));
      const there = above.map((value, i) => `${x(i)},${y(value)}`);
      const back = below.map((value, i) => `${x(i)},${y(value)}`).reverse();
      svg.append(drawn("polygon", { class: `area k${place}`, points: [...there, ...back].join(" ") }));
      below = above;
    } else {
      svg.append(
        drawn("path", {
          class: `line k${place}`,
          d: path(one.values.map((value, i) => [x(i), y(value), Number.isFinite(value)])),
        }),
      );
    }
  });
  if (limit && limit <= top) {
    svg.append(drawn("line", { class: "limit", x1: LEFT, x2: WIDTH - RIGHT, y1: y(limit), y2: y(limit) }));
  }
  const cursor = drawn("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  svg.append(cursor);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const at = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    const i = Math.round(Math.min(1, Math.max(0, at)) * (times.length - 1));
    filled(cursor, { x1: x(i), x2: x(i), visibility: "visible" }, []);
    tip(
      event,
      clock(times[i]),
      series.map((one) => [one.name, Number.isFinite(one.values[i]) ? show(one.values[i]) : "–"]),
    );
  });
  svg.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    tip(null);
  });
  return [svg, legend(series, show)];
}

/** A path that leaves out points that are not known. */
function path(points) {
  let isOpen = false;
  return points
    .map(([x, y, isKnown]) => {
      const step = isKnown ? `${isOpen ? "L" : "M"}${x} ${y}` : "";
      isOpen = isKnown;
      return step;
    })
    .join("");
}

/** Draws the miss ratio of layers by their size, with a dot at the size that each has. */
export function curves(layers, roomBytes) {
  const [width, height, left, bottom] = [300, 150, 34, 20];
  const x = (part) => left + (width - left - 8) * part;
  const y = (ratio) => 6 + (height - bottom - 6) * (1 - ratio);
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": "miss ratio by size",
  });
  for (const part of [0, 0.5, 1]) {
    svg.append(
      drawn("line", { class: "grid", x1: left, x2: width - 8, y1: y(part), y2: y(part) }),
      drawn("text", { x: left - 4, y: y(part) + 4, "text-anchor": "end" }, `${part * 100}%`),
      drawn(
        "text",
        { x: x(part), y: height - 4, "text-anchor": part ? (part === 1 ? "end" : "middle") : "start" },
        bytes(roomBytes * part),
      ),
    );
  }
  layers.forEach((layer, place) => {
    const steps = layer.miss_ratios.length - 1;
    if (steps < 1) return;
    svg.append(
      drawn("path", {
        class: `line k${place}`,
        d: path(layer.miss_ratios.map((ratio, i) => [x(i / steps), y(ratio), true])),
      }),
    );
    const part = Math.min(1, layer.target_bytes / roomBytes);
    const i = Math.min(steps - 1, Math.floor(part * steps));
    const ratio =
      layer.miss_ratios[i] + (layer.miss_ratios[i + 1] - layer.miss_ratios[i]) * (part * steps - i);
    svg.append(
      drawn(
        "circle",
        { class: `dot k${place}`, cx: x(part), cy: y(ratio), r: 5 },
        drawn("title", {}, `${layer.layer}: ${percent(ratio)} missed with ${bytes(layer.target_bytes)}`),
      ),
    );
  });
  return svg;
}

/**
 * Draws spans of time, a row for each name.
 *
 * @param {{name: string, spans: {from: number, until: number, kind: number, title: string}[]}[]} rows
 */
export function gantt(rows, { from, until, now }) {
  const [width, row, left, top] = [1200, 20, 300, 22];
  const height = top + rows.length * row + 4;
  const x = (at) =>
    left + ((width - left - 10) * (Math.min(until, Math.max(from, at)) - from)) / Math.max(1, until - from);
  const svg = drawn("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": "plan over time",
  });
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const at = from + (until - from) * part;
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    svg.append(
      drawn("line", { class: "grid", x1: x(at), x2: x(at), y1: top - 4, y2: height }),
      drawn("text", { x: x(at), y: 12, "text-anchor": anchor }, clock(at)),
    );
  }
  rows.forEach((one, place) => {
    const y = top + place * row;
    const name = one.name.length > 44 ? `…${one.name.slice(-43)}` : one.name;
    svg.append(
      drawn(
        "text",
        { class: "label", x: left - 10, y: y + 13, "text-anchor": "end" },
        name,
        drawn("title", {}, one.name),
      ),
    );
    for (const span of one.spans) {
      const begin = x(span.from);
      svg.append(
        drawn(
          "rect",
          {
            class: `span k${span.kind}`,
            x: begin,
            y: y + 3,
            width: Math.max(2, x(span.until) - begin),
            height: row - 8,
            rx: 3,
          },
          drawn("title", {}, span.title),
        ),
      );
    }
  });
  if (now >= from && now <= until) {
    svg.append(drawn("line", { class: "now", x1: x(now), x2: x(now), y1: top - 4, y2: height }));
  }
  return svg;
}

/** Parts of a whole, as a bar; `parts` are shares of 1. */
export function bar(parts, label) {
  return element(
    "div",
    { class: "bar", role: "img", "aria-label": label, title: label },
    ...parts.map((part, i) => {
      const piece = element("i", { class: `k${i}` });
      piece.style.width = `${Math.min(1, Math.max(0, part || 0)) * 100}%`;
      return piece;
    }),
  );
}

/** Makes a table; a column is a title, what shows a row, and whether it is a number. */
export function table(columns, rows, empty) {
  if (!rows.length) return element("p", { class: "empty" }, empty);
  const cell = (name, isNumber, ...content) =>
    element(name, { class: isNumber ? "number" : undefined }, ...content);
  return element(
    "table",
    {},
    element(
      "thead",
      {},
      element("tr", {}, ...columns.map(([title, , isNumber]) => cell("th", isNumber, title))),
    ),
    element(
      "tbody",
      {},
      ...rows.map((row) =>
        element(
          "tr",
          {},
          ...columns.map(([, show, isNumber]) => cell("td", isNumber, ...[show(row)].flat())),
        ),
      ),
    ),
  );
}

function tip(event, title, lines = []) {
  const box = document.getElementById("tip");
  box.hidden = !event;
  if (!event) return;
  box.replaceChildren(
    element("b", {}, title),
    ...lines.map(([name, value]) => element("div", {}, element("span", {}, name), element("b", {}, value))),
  );
  box.style.left = `${Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)}px`;
  box.style.top = `${Math.min(event.clientY + 14, innerHeight - box.offsetHeight - 8)}px`;
}

/** The next greater number that is 1, 2 or 5 times a power of ten, of a unit that is a power of 1024. */
function rounded(value) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log(value) / Math.log(1024)));
  const power = 10 ** Math.floor(Math.log10(value / unit));
  return [1, 2, 5, 10].map((step) => step * power * unit).find((step) => step >= value);
}
