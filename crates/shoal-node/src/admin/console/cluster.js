// Reads the pages of the admin port: those of this node, and through it those of the others.

const TOKEN = "shoal-token";
const PATIENCE_MS = 4000;
/** The answers in a row that a node owes before it counts as silent. */
const PATIENCE = 2;

export class Unauthorized extends Error {}

export function useToken(token) {
  sessionStorage.setItem(TOKEN, token.trim());
}

async function read(path) {
  const token = sessionStorage.getItem(TOKEN);
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.status === 401) throw new Unauthorized();
  if (!answer.ok) throw new Error((await answer.text()).trim() || `${path}: ${answer.status}`);
  return answer.json();
}

async function readOr(path, other) {
  try {
    return await read(path);
  } catch (error) {
    if (error instanceof Unauthorized) throw error;
    return other;
  }
}

/** The rates of a node's counters between two samples, from the samples of the last hour. */
export class History {
  names = [];
  rows = [];

  add(page) {
    this.names = page.names;
    this.rows = this.rows.concat(page.rows).slice(-720);
  }

  get first() {
    return this.rows.length ? this.rows[0][0] : 0;
  }

  get last() {
    return this.rows.length ? this.rows[this.rows.length - 1][0] : 0;
  }

  /** The value of a counter in the latest sample. */
  latest(name) {
    const place = this.names.indexOf(name) + 1;
    return place && this.rows.length ? this.rows[this.rows.length - 1][place] : 0;
  }

  /** What a counter grew by after a time; a restart of the node begins at 0. */
  growth(name, since) {
    return this.steps(name, since).reduce((sum, step) => sum + step.grew, 0);
  }

  /** The growth of a counter from sample to sample. */
  steps(name, since) {
    const place = this.names.indexOf(name) + 1;
    if (!place) return [];
    const steps = [];
    for (let i = 1; i < this.rows.length; i++) {
      const [before, after] = [this.rows[i - 1], this.rows[i]];
      const seconds = after[0] - before[0];
      if (after[0] <= since || seconds <= 0) continue;
      const grew = after[place] >= before[place] ? after[place] - before[place] : after[place];
      steps.push({ at: after[0], seconds, grew, value: after[place] });
    }
    return steps;
  }
}

export class Cluster {
  self = "";
  /** Members, the statuses of those that answered, and their histories, by name. */
  members = [];
  statuses = new Map();
  histories = new Map();
  tasks = [];
  hints = [];
  plan = null;
  timeline = null;

  page(name, page) {
    return name === this.self ? `/${page}` : `/nodes/${encodeURIComponent(name)}/${page}`;
  }

  /** Answers in a row that each node did not give. */
  #missed = new Map();

  /** Reads all that is shown. A node that did not answer twice in a row, or never, is left out of `statuses`. */
  async read() {
    const members = await read("/members");
    this.self = members.self;
    const names = members.members.map((member) => member.name);
    // A member that died is soon forgotten by the others.
    const gone = this.members.filter((member) => !names.includes(member.name));
    this.members = [...members.members, ...gone.map((member) => ({ ...member, state: "gone" }))];
    this.members.sort((a, b) => a.name.localeCompare(b.name));
    const [statuses, pages, tasks, hints, plan] = await Promise.all([
      Promise.all(names.map((name) => readOr(this.page(name, "status"), null))),
      Promise.all(
        names.map((name) => readOr(this.page(name, `history?since=${this.history(name).last}`), null)),
      ),
      readOr("/tasks?limit=50", { tasks: [] }),
      readOr("/hints", { hints: [] }),
      readOr("/plan", null),
    ]);
    names.forEach((name, i) =>
      this.#missed.set(name, statuses[i] ? 0 : (this.#missed.get(name) ?? PATIENCE) + 1),
    );
    const known = (name, i) =>
      statuses[i] ?? (this.#missed.get(name) < PATIENCE ? this.statuses.get(name) : null);
    this.statuses = new Map(names.map((name, i) => [name, known(name, i)]).filter(([, status]) => status));
    names.forEach((name, i) => pages[i] && this.history(name).add(pages[i]));
    gone.forEach((member) => this.histories.delete(member.name));
    this.tasks = tasks.tasks;
    this.hints = hints.hints;
    if (plan?.id !== this.plan?.id) {
      this.timeline = plan && (await readOr("/plan/timeline", null));
    }
    this.plan = plan;
  }

  history(name) {
    if (!this.histories.has(name)) this.histories.set(name, new History());
    return this.histories.get(name);
  }

  /** The growth of a counter at all nodes after a time. */
  growth(name, since) {
    let sum = 0;
    for (const history of this.histories.values()) sum += history.growth(name, since);
    return sum;
  }

  /** The greatest value of any node in its latest sample: of what each counts for all nodes. */
  greatest(name) {
    return Math.max(0, ...[...this.histories.values()].map((history) => history.latest(name)));
  }

  /** The names of counters with a prefix, that any node has. */
  counters(prefix) {
    const names = new Set();
    for (const history of this.histories.values()) {
      history.names.filter((name) => name.startsWith(prefix)).forEach((name) => names.add(name));
    }
    return [...names];
  }

  /** The growth a second of a counter at all nodes together, in the time `every` before each of the times. */
  rates(name, times, every) {
    const rates = times.map(() => 0);
    for (const history of this.histories.values()) {
      for (const { at, seconds, grew } of history.steps(name, times[0] - every)) {
        const begin = Math.max(0, Math.floor((at - seconds - times[0]) / every) + 1);
        for (let i = begin; i < times.length && times[i] - every < at; i++) {
          const shared = Math.min(at, times[i]) - Math.max(at - seconds, times[i] - every);
          rates[i] += (grew * Math.max(0, shared)) / seconds / every;
        }
      }
    }
    return rates;
  }

  /** Where the blocks of an object are, as each node that answers says. */
  async explain(object) {
    const names = [...this.statuses.keys()];
    const query = `explain?object=${encodeURIComponent(object)}`;
    const pages = await Promise.all(
      names.map(async (name) => {
        try {
          return { name, page: await read(this.page(name, query)) };
        } catch (error) {
          return { name, error: error.message };
        }
      }),
    );
    return pages;
  }
}
