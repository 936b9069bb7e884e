// Shows the cluster, and reads it again every few seconds. It gives no order.

import { Cluster, Unauthorized, useToken } from "./cluster.js";
import {
  bar,
  bytes,
  clock,
  curves,
  duration,
  element,
  gantt,
  legend,
  number,
  overTime,
  percent,
  table,
} from "./charts.js";

const REFRESH_MS = 5000;
const POINTS = 60;
const WINDOWS = [
  ["5 min", 300],
  ["15 min", 900],
  ["1 h", 3600],
];
const MONTH_S = 30 * 86400;

const cluster = new Cluster();
let shownSeconds = 900;
let timer = 0;

const at = (id) => document.getElementById(id);
const show = (id, ...content) => at(id).replaceChildren(...content.flat());

async function refresh() {
  clearTimeout(timer);
  try {
    await cluster.read();
    at("token-form").hidden = true;
    draw();
    show("read-at", `read by ${cluster.self} at ${clock(Date.now() / 1000)}`);
  } catch (error) {
    if (error instanceof Unauthorized) {
      at("token-form").hidden = false;
      show("summary", "A token is needed to read this node.");
    } else {
      show(
        "summary",
        element(
          "span",
          { class: "bad" },
          `✕ This node does not answer: ${error.message}. What was read last is shown.`,
        ),
      );
    }
  }
  timer = setTimeout(refresh, REFRESH_MS);
}

function draw() {
  const now = Math.floor(Date.now() / 1000);
  const every = Math.max(10, shownSeconds / POINTS);
  const count = Math.floor(shownSeconds / every);
  // The last moment of which each node that still sends samples has sent one.
  const lasts = [...cluster.histories.values()].map((history) => history.last);
  const newest = Math.max(...lasts, 0);
  const end = newest ? Math.min(...lasts.filter((last) => last > newest - 60)) : now;
  const times = Array.from({ length: count }, (_, i) => end - (count - 1 - i) * every);
  const begins = [...cluster.histories.values()].map((history) => history.first).filter(Boolean);
  const since = Math.max(end - shownSeconds, Math.min(end, ...begins));
  const seconds = Math.max(1, end - since);
  summary();
  tiles(since, seconds);
  nodes(since, seconds);
  charts(times, every);
  room();
  prefixes();
  tasks();
  hints();
  plan(now);
  saved(since, seconds);
}

function troubles() {
  const found = [];
  for (const member of cluster.members) {
    const status = cluster.statuses.get(member.name);
    if (member.state === "gone")
      found.push([member.name, "it has left the cluster, or died, since this page was opened"]);
    else if (!status) found.push([member.name, "it does not answer"]);
    for (const condition of status?.conditions ?? [])
      found.push([member.name, `${condition.condition}: ${condition.detail}`, condition.advice]);
    if (status?.config.error)
      found.push([member.name, `the latest configuration is not in force: ${status.config.error}`]);
  }
  return found;
}

function summary() {
  const found = troubles();
  const [all, answering] = [cluster.members.length, cluster.statuses.size];
  const word = found.length ? ["bad", `⚠ ${found.length} to look at`] : ["good", "✓ nothing to look at"];
  show("summary", `${answering} of ${all} nodes answer · `, element("span", { class: word[0] }, word[1]));
  at("troubles").hidden = !found.length;
  show(
    "troubles",
    element("h2", {}, "To look at"),
    element(
      "ul",
      {},
      ...found.map(([node, what, advice]) =>
        element(
          "li",
          {},
          element("b", {}, node),
          ` ${what}`,
          advice && element("div", { class: "note" }, advice),
        ),
      ),
    ),
  );
}

/** Bytes to clients by source, after a time. */
function served(since, of = cluster) {
  const by = Object.fromEntries(
    ["local", "peer", "tier", "lake"].map((source) => [source, of.growth(`read_bytes/${source}`, since)]),
  );
  const all = by.local + by.peer + by.tier + by.lake;
  return { ...by, all, hit: all ? 1 - by.lake / all : NaN };
}

function tiles(since, seconds) {
  const bytesServed = served(since);
  const dirty = cluster.greatest("dirty_bytes");
  const oldest = cluster.greatest("tier_oldest_seconds");
  const jobs = cluster.plan?.plan?.jobs;
  const tile = (value, label) =>
    element("div", { class: "tile" }, element("b", {}, value), element("span", {}, label));
  show(
    "tiles",
    tile(percent(bytesServed.hit), "of bytes without the lake"),
    tile(`${bytes(bytesServed.all / seconds)}/s`, "to clients"),
    tile(`${bytes(cluster.growth("lake_bytes", since) / seconds)}/s`, "from the lake"),
    tile(number(cluster.growth("requests", since) / seconds), "requests a second"),
    tile(bytes(dirty), dirty ? `not at the lake, the oldest for ${duration(oldest)}` : "not at the lake"),
    tile(
      jobs ? number((jobs.at_risk ?? 0) + (jobs.missed ?? 0)) : "–",
      jobs ? "jobs of the plan at risk or missed" : "no plan in force",
    ),
  );
}

function nodes(since, seconds) {
  const state = (member) => {
    const status = cluster.statuses.get(member.name);
    if (member.state === "gone") return element("span", { class: "bad" }, "✕ gone");
    if (!status) return element("span", { class: "bad" }, "✕ no answer");
    if (status.conditions.some((condition) => condition.unready))
      return element("span", { class: "bad" }, "✕ not ready");
    if (status.conditions.length)
      return element(
        "span",
        { class: "warn" },
        `⚠ ${status.conditions.map((condition) => condition.condition).join(", ")}`,
      );
    if (member.state === "draining") return element("span", { class: "warn" }, "draining");
    return element("span", { class: "good" }, "✓ ready");
  };
  const status = (member) => cluster.statuses.get(member.name);
  const used = (member) => {
    const store = status(member)?.store;
    if (!store) return "–";
    const label = `${bytes(store.resident_bytes)} of ${bytes(store.capacity_bytes)}`;
    return [label, bar([store.resident_bytes / store.capacity_bytes], label)];
  };
  const rate = (member, name) => `${bytes(cluster.history(member.name).growth(name, since) / seconds)}/s`;
  const readLake = (member) => status(member)?.lake.first_byte_ms.read;
  show(
    "nodes",
    table(
      [
        ["Node", (member) => element("b", {}, member.name)],
        ["State", state],
        ["Place", (member) => member.topology],
        ["Room", used],
        ["Hit rate", (member) => percent(served(since, cluster.history(member.name)).hit), true],
        [
          "To clients",
          (member) => `${bytes(served(since, cluster.history(member.name)).all / seconds)}/s`,
          true,
        ],
        ["From the lake", (member) => rate(member, "lake_bytes"), true],
        [
          "Lake, p50 / p99",
          (member) =>
            readLake(member) ? `${number(readLake(member).p50)} / ${number(readLake(member).p99)} ms` : "–",
          true,
        ],
        ["Release", (member) => status(member)?.node.version ?? "–"],
      ],
      cluster.members,
      "No node is known.",
    ),
  );
}

function charts(times, every) {
  const rate = (value) => `${bytes(value)}/s`;
  const series = (name, counter) => ({ name, values: cluster.rates(counter, times, every) });
  const sources = [
    ["this node", "local"],
    ["other nodes", "peer"],
    ["tier", "tier"],
    ["lake", "lake"],
  ];
  const reads = sources.map(([name, word]) => series(name, `read_bytes/${word}`));
  show("sources", overTime(times, reads, { show: rate, isStacked: true }));
  const layers = cluster.counters("layer_requests/").filter((name) => name.endsWith("/hit"));
  const share = (part, rest) =>
    part.map((value, i) => (value + rest[i] > 0 ? value / (value + rest[i]) : NaN));
  const sum = (all) => times.map((_, i) => all.reduce((total, one) => total + one.values[i], 0));
  const hits = [
    { name: "bytes without the lake", values: share(sum(reads.slice(0, 3)), reads[3].values) },
    ...layers.map((name) => ({
      name: `blocks in ${name.split("/")[1]}`,
      values: share(
        cluster.rates(name, times, every),
        cluster.rates(name.replace("/hit", "/miss"), times, every),
      ),
    })),
  ];
  show("hits", overTime(times, hits, { show: percent, most: 1 }));
  const classes = ["client", "planned", "prefetch", "cleaning"];
  const isMetered = cluster.counters("link_bytes/down/").length > 0;
  const links = [...cluster.statuses.values()].map((status) => status.link).filter(Boolean);
  const shared = links.find((link) => link.scope === "cluster");
  const limit = shared
    ? shared.bandwidth_bytes_per_second
    : links.reduce((all, link) => all + link.bandwidth_bytes_per_second, 0);
  const down = isMetered
    ? classes.slice(0, 3).map((word) => series(word, `link_bytes/down/${word}`))
    : [series("all (the link is not metered)", "lake_bytes")];
  show("link", overTime(times, down, { show: rate, isStacked: true, limit }));
  const tiers = [...cluster.statuses.values()].flatMap((status) => status.write_back.tiers);
  const dirty = { name: "bytes", values: maxima("dirty_bytes", times, every) };
  show(
    "tier",
    tiers.length
      ? overTime(times, [dirty], { show: bytes })
      : element("p", { class: "empty" }, "No tier: every write is at the lake when it is acknowledged."),
  );
  if (tiers.length) {
    const oldest = Math.max(0, ...tiers.map((tier) => tier.oldest_seconds ?? 0));
    const full = Math.max(
      ...tiers.map((tier) => (tier.capacity_bytes ? tier.bytes / tier.capacity_bytes : 0)),
    );
    at("tier").append(
      element(
        "p",
        { class: "note" },
        `oldest object ${duration(oldest)} · tier ${percent(full)} full · ${tiers.reduce((all, tier) => all + tier.failed, 0)} flushes failed last time`,
      ),
    );
  }
}

/** The greatest value of any node: each counts the bytes of all. */
function maxima(name, times, every) {
  const greatest = times.map(() => NaN);
  for (const history of cluster.histories.values()) {
    for (const step of history.steps(name, times[0] - every)) {
      const place = Math.min(times.length - 1, Math.max(0, Math.ceil((step.at - times[0]) / every)));
      greatest[place] = Math.max(step.value, Number.isNaN(greatest[place]) ? 0 : greatest[place]);
    }
  }
  return greatest;
}

function room() {
  const shown = [...cluster.statuses].map(([name, status]) => {
    const all = status.layers.reduce((sum, layer) => sum + layer.target_bytes, 0);
    const isAdaptive = status.layers.some((layer) => layer.miss_ratios.length > 1);
    const series = status.layers.map((layer) => ({ name: layer.layer, values: [layer.target_bytes] }));
    const split = status.layers.map((layer) => layer.target_bytes / all);
    return element(
      "div",
      {},
      element("h3", {}, name),
      isAdaptive
        ? curves(status.layers, all)
        : element(
            "p",
            { class: "empty" },
            status.layers.length > 1
              ? "The split is fixed by the configuration."
              : "One layer has all of the room.",
          ),
      bar(split, series.map((one) => `${one.name} ${bytes(one.values[0])}`).join(", ")),
      legend(series, bytes),
    );
  });
  show("room", shown);
}

function prefixes() {
  const folders = new Map();
  for (const status of cluster.statuses.values()) {
    for (const reads of status.reads.top_folders) {
      const sum = folders.get(reads.folder) ?? { folder: reads.folder, bytes: 0, lake_bytes: 0 };
      folders.set(reads.folder, {
        ...sum,
        bytes: sum.bytes + reads.bytes,
        lake_bytes: sum.lake_bytes + reads.lake_bytes,
      });
    }
  }
  const top = [...folders.values()].sort((a, b) => b.bytes - a.bytes).slice(0, 10);
  const all = top.reduce((sum, reads) => sum + reads.bytes, 0);
  show(
    "prefixes",
    table(
      [
        ["Objects below", (reads) => element("code", {}, reads.folder)],
        [
          "Read lately",
          (reads) => [bytes(reads.bytes), bar([reads.bytes / all], `${percent(reads.bytes / all)} of these`)],
        ],
        ["From the lake", (reads) => bytes(reads.lake_bytes), true],
        ["Hit rate", (reads) => percent(1 - reads.lake_bytes / reads.bytes), true],
      ],
      top,
      "Nothing has been read.",
    ),
  );
}

function tasks() {
  const progress = (task) => {
    const { done, total } = task.bytes;
    if (!total) return done ? bytes(done) : "–";
    const label = `${bytes(done)} of ${bytes(total)}`;
    return [label, bar([done / total], label)];
  };
  const state = (task) => {
    const kind = { failed: "bad", done: "good" }[task.state] ?? (task.at_risk ? "warn" : "");
    const words = { failed: "✕ ", done: "✓ " }[task.state] ?? (task.at_risk ? "⚠ at risk, " : "");
    return element("span", { class: kind }, `${words}${task.state}${task.reason ? `: ${task.reason}` : ""}`);
  };
  show(
    "tasks",
    table(
      [
        ["Task", (task) => element("code", {}, task.id.slice(-8))],
        ["Kind", (task) => task.kind + (task.dry_run ? " (dry run)" : "")],
        ["Objects below", (task) => element("code", {}, task.uri ?? task.hint?.inputs.join(" ") ?? "a list")],
        ["State", state],
        ["Done", progress],
        [
          "Rate",
          (task) =>
            task.state === "running" && task.bytes_per_second ? `${bytes(task.bytes_per_second)}/s` : "–",
          true,
        ],
        ["Runs on", (task) => task.runner ?? "–"],
        ["Created", (task) => new Date(task.created).toLocaleString([], { hour12: false })],
      ],
      cluster.tasks.filter((task) => task.kind !== "plan").slice(0, 12),
      "No task.",
    ),
  );
}

function hints() {
  show(
    "hints",
    table(
      [
        ["Reader", (hint) => `${hint.task.hint.reader.namespace}/${hint.task.hint.reader.name}`],
        ["Inputs", (hint) => element("code", {}, hint.task.hint.inputs.join(" "))],
        ["State", (hint) => (hint.keeps ? "kept" : hint.task.state)],
        ["Brought", (hint) => bytes(hint.brought_bytes), true],
        [
          "Used",
          (hint) => [
            bytes(hint.used_bytes),
            bar(
              [hint.used_bytes / hint.brought_bytes],
              `${percent(hint.used_bytes / hint.brought_bytes)} used`,
            ),
          ],
        ],
        ["Wasted", (hint) => bytes(hint.wasted_bytes), true],
        ["Early", (hint) => (hint.early_ms === null ? "–" : duration(hint.early_ms / 1000)), true],
      ],
      cluster.hints.slice(0, 12),
      "No engine has sent what its jobs read.",
    ),
  );
}

function plan(now) {
  const task = cluster.plan;
  if (!task) {
    show("plan", element("p", { class: "empty" }, "No plan in force."));
    return;
  }
  const words = Object.entries(task.plan?.jobs ?? {}).filter(([, count]) => count > 0);
  const content = [
    element(
      "p",
      { class: "note" },
      `${task.state}, ${words.map(([word, count]) => `${count} ${word.replaceAll("_", " ")}`).join(", ")}`,
    ),
  ];
  const timeline = cluster.timeline;
  if (timeline) {
    const troubled = new Map((task.plan?.troubled ?? []).map((job) => [job.job, job.status]));
    const rows = [
      ...timeline.jobs.map((job) => ({
        name: troubled.has(job.job) ? `⚠ ${job.job}` : job.job,
        spans: [
          {
            from: job.submit,
            until: job.deadline,
            kind: troubled.has(job.job) ? 2 : 0,
            title: `${job.job}: ${clock(job.submit)} to ${clock(job.deadline)}${job.is_planned ? "" : ", not planned"}`,
          },
        ],
      })),
      ...timeline.files.map((file) => ({
        name: file.file,
        spans: [
          ...file.cached.map(([from, until]) => ({
            from,
            until,
            kind: 3,
            title: `${file.file} is kept until ${clock(until)}`,
          })),
          ...file.fetched.map(([from, until]) => ({
            from,
            until,
            kind: 1,
            title: `${file.file} is fetched ${clock(from)} to ${clock(until)}`,
          })),
        ],
      })),
    ];
    content.push(gantt(rows, { from: timeline.from, until: timeline.until, now }));
    const kinds = [
      ["job, from submission to deadline", 0],
      ["fetch", 1],
      ["job at risk or missed", 2],
      ["kept", 3],
    ];
    content.push(
      element(
        "div",
        { class: "legend" },
        ...kinds.map(([name, kind]) => element("span", {}, element("i", { class: `k${kind}` }), name)),
      ),
    );
  }
  show("plan", content);
}

function saved(since, seconds) {
  const prices = new FormData(at("prices"));
  const price = (name) => Number.parseFloat(prices.get(name)) || 0;
  const bytesSaved = Math.max(0, served(since).all - cluster.growth("lake_bytes", since));
  const requestsSaved = Math.max(
    0,
    cluster.growth("requests", since) - cluster.growth("lake_requests", since),
  );
  const money = (bytesSaved / 1e9) * price("gigabyte") + (requestsSaved / 1000) * price("requests");
  const perMonth = (amount) => (amount * MONTH_S) / seconds;
  const amount = (value) =>
    value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  show(
    "saved",
    table(
      [
        ["", (row) => row[0]],
        [`In the last ${duration(seconds)}`, (row) => row[2](row[1]), true],
        ["A month at this rate", (row) => row[2](perMonth(row[1])), true],
      ],
      [
        ["Bytes", bytesSaved, bytes],
        ["Requests", requestsSaved, number],
        ["Money, at these prices", money, amount],
      ],
      "",
    ),
  );
}

async function explain(event) {
  event.preventDefault();
  const object = at("object").value.trim();
  show("explain", element("p", { class: "empty" }, "Asking the nodes."));
  const pages = await cluster.explain(object);
  const version = pages.map(({ page }) => page?.version).find(Boolean);
  const count = (page, word) => (page ? page.blocks.filter((block) => block.here === word).length : NaN);
  const why = (page) =>
    [...new Set((page?.blocks ?? []).map((block) => block.reason).filter(Boolean))].join(", ") || "–";
  const pins = (page) =>
    (page?.pins ?? [])
      .map((pin) =>
        pin.hint ? `hint of ${pin.hint.reader.name}` : `pinned until ${new Date(pin.until).toLocaleString()}`,
      )
      .join(", ") || "–";
  show(
    "explain",
    element(
      "p",
      { class: "note" },
      version
        ? `${bytes(version.size_bytes)} in ${version.blocks} blocks of ${bytes(version.block_bytes)}, ETag ${version.etag}`
        : "No node knows a version of this object: nobody has read it here lately.",
    ),
    table(
      [
        ["Node", ({ name }) => name],
        ["Blocks here", ({ page }) => number(count(page, "resident")), true],
        ["Arriving", ({ page }) => number(count(page, "arriving")), true],
        ["Evicted", ({ page }) => number(count(page, "evicted")), true],
        ["Why", ({ page, error }) => error ?? why(page)],
        ["Kept for", ({ page }) => pins(page)],
      ],
      pages,
      "",
    ),
  );
}

for (const [label, seconds] of WINDOWS) {
  const button = element("button", { "aria-pressed": String(seconds === shownSeconds) }, label);
  button.addEventListener("click", () => {
    shownSeconds = seconds;
    for (const other of at("windows").children) other.setAttribute("aria-pressed", String(other === button));
    draw();
  });
  at("windows").append(button);
}
at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useToken(at("token").value);
  refresh();
});
at("explain-form").addEventListener("submit", explain);
at("prices").addEventListener("input", draw);
at("prices").addEventListener("submit", (event) => event.preventDefault());
refresh();
