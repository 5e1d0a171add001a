"use strict";
(() => {
  // Fields of a track and of a span, which the page has as arrays.
  const JOB = 0, RANK = 1, NODE = 2, PROTOCOL = 3, EXIT = 4, FAILED = 5, SPANS = 6;
  const PHASE = 0, START = 1, END = 2, OPEN = 3, REQUESTS = 4, COLLECTIVE = 5, LANE = 6, MESSAGES = 7;
  const AXIS = 26, ROW_MIN = 0.5, ROW_MAX = 40, TABLE_MAX = 500;
  const { head, collectives, tracks } = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const chart = byId("chart"), space = byId("space"), canvas = byId("canvas"), tip = byId("tip");
  const brush = canvas.getContext("2d");
  const severalJobs = head.jobs.length > 1, severalHosts = new Set(tracks.map((track) => track[NODE])).size > 1;

  // Texts of clients come here as text nodes only.
  function make(tag, options = {}, ...children) {
    const { style, on, data, ...rest } = options;
    const made = Object.assign(document.createElement(tag), rest);
    Object.assign(made.style, style);
    Object.assign(made.dataset, data);
    for (const name in on) made.addEventListener(name, on[name]);
    made.append(...children);
    return made;
  }
  const seconds = (ms) => (ms / 1000).toFixed(3) + " s";
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const rankName = (track) =>
    `rank ${track[RANK]}` + (severalJobs ? ` of ${head.jobs[track[JOB]].name}` : "") + (severalHosts ? ` on ${head.nodes[track[NODE]]}` : "");
  const phaseName = (span) => head.phases[span[PHASE]];
  const spanName = (span) => (span[COLLECTIVE] === null ? phaseName(span) : collectives[span[COLLECTIVE]].name);
  function table(columns, rows, className = "") {
    const cells = columns.map(([title, kind]) => make("th", { className: kind, scope: "col" }, title));
    return make("div", { className: "scroll " + className }, make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows)));
  }
  const cell = (content, className = "") => make("td", { className }, content);

  // View: a window of time, a height of rows, and an order of tracks.
  const limit = Math.max(head.end, 1);
  const startUp = {
    begin: Math.min(...head.jobs.map((job) => job.begin), limit),
    end: Math.max(...head.jobs.map((job) => job.end), 1),
  };
  // A long start of hydrant and its daemons is left to the left.
  const origin = startUp.begin > limit / 4 ? startUp.begin - (limit - startUp.begin) * 0.02 : 0;
  const view = { from: origin, to: limit, row: 10, order: tracks.map((_, at) => at), hover: null, picked: null };
  let colours = {}, width = 0, height = 0, gutter = 70;

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const names = [...head.phases, "text", "soft", "line", "life", "stripe", "card", "late", "select", "own"];
    for (const name of names) colours[name] = style.getPropertyValue("--" + name).trim();
  }
  const x = (ms) => gutter + ((ms - view.from) / (view.to - view.from)) * (width - gutter);
  const timeAt = (px) => view.from + ((px - gutter) / (width - gutter)) * (view.to - view.from);
  const y = (row) => AXIS + row * view.row - chart.scrollTop;

  function layout() {
    const room = Math.max(220, Math.min(innerHeight * 0.62, AXIS + tracks.length * view.row + 4));
    chart.style.height = Math.min(room, Math.max(AXIS + tracks.length * view.row + 4, AXIS + 24)) + "px";
    space.style.height = AXIS + tracks.length * view.row + "px";
    width = chart.clientWidth;
    height = chart.clientHeight;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.width = width + "px";
    canvas.style.height = height + "px";
    brush.setTransform(scale, 0, 0, scale, 0, 0);
    draw();
  }
  function fitRows() {
    const fit = (innerHeight * 0.62 - AXIS) / Math.max(tracks.length, 1);
    view.row = Math.max(ROW_MIN, Math.min(24, fit));
  }
  function zoom(factor, at = (view.from + view.to) / 2) {
    const length = Math.max(1, Math.min(limit * 1.02, (view.to - view.from) * factor));
    const part = (at - view.from) / (view.to - view.from);
    moveTo(at - part * length, length);
  }
  function moveTo(from, length) {
    view.from = Math.max(0, Math.min(from, Math.max(0, limit * 1.02 - length)));
    view.to = view.from + length;
    draw();
  }
  function show(from, to) {
    const margin = Math.max(1, (to - from) * 0.03);
    const start = Math.max(0, from - margin);
    moveTo(start, Math.min(limit * 1.02, to + margin) - start);
  }
  function rows(height) {
    const middle = (chart.scrollTop + (chart.clientHeight - AXIS) / 2) / view.row;
    view.row = Math.max(ROW_MIN, Math.min(ROW_MAX, height));
    layout();
    chart.scrollTop = middle * view.row - (chart.clientHeight - AXIS) / 2;
    draw();
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      paint();
    });
  }

  function paint() {
    if (width === 0) return;
    brush.font = "11px system-ui, sans-serif";
    const longest = tracks.reduce((longest, track) => Math.max(longest, track[RANK]), 0);
    gutter = 26 + brush.measureText("rank " + longest).width;
    brush.clearRect(0, 0, width, height);
    const first = Math.max(0, Math.floor(chart.scrollTop / view.row));
    const last = Math.min(view.order.length, Math.ceil((chart.scrollTop + height - AXIS) / view.row) + 1);
    brush.save();
    brush.beginPath();
    brush.rect(gutter, AXIS, width - gutter, height - AXIS);
    brush.clip();
    for (let row = first + (first + 1) % 2; row < last && view.row >= 8; row += 2) {
      brush.fillStyle = colours.stripe;
      brush.fillRect(gutter, y(row), width - gutter, view.row);
    }
    const ticks = ticksOf();
    brush.strokeStyle = colours.line;
    for (const at of ticks.times) line(Math.round(x(at)) + 0.5, AXIS, height);
    for (let row = first; row < last; row++) paintRow(row);
    paintLate(first, last);
    paintPicked(first, last);
    brush.restore();
    paintLabels(first, last);
    paintAxis(ticks);
  }
  function line(left, top, bottom) {
    brush.beginPath();
    brush.moveTo(left, top);
    brush.lineTo(left, bottom);
    brush.stroke();
  }
  function ticksOf() {
    const rough = (view.to - view.from) / Math.max(2, (width - gutter) / 110);
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough));
    const digits = Math.max(0, Math.min(3, 3 - Math.floor(Math.log10(step))));
    const times = [];
    for (let at = Math.ceil(view.from / step) * step; at <= view.to; at += step) times.push(at);
    return { times, digits };
  }

  function paintRow(row) {
    const track = tracks[view.order[row]];
    const top = y(row), gap = view.row >= 5 ? 1 : 0;
    const spans = track[SPANS];
    const first = spans.length ? spans[0][START] : track[EXIT]?.[0] ?? 0;
    const end = track[EXIT]?.[0] ?? (spans.length ? spans[spans.length - 1][END] : first);
    brush.fillStyle = colours.life;
    brush.fillRect(x(first), top + gap + view.row * 0.25, Math.max(1, x(end) - x(first)), view.row * 0.5 - gap);
    const lanes = spans.reduce((lanes, span) => Math.max(lanes, span[LANE] + 1), 1);
    for (const span of spans) {
      const left = x(span[START]), right = x(span[END]);
      if (right < gutter || left > width) continue;
      const size = (view.row - 2 * gap) / lanes;
      const spot = top + gap + span[LANE] * size;
      brush.fillStyle = colours[phaseName(span)];
      const wide = Math.max(view.row >= 5 ? 2 : 1, right - left);
      brush.fillRect(left, spot, wide, size);
      if (span[OPEN]) {
        brush.fillStyle = colours.late;
        brush.fillRect(left, spot + size - Math.max(1, size / 6), wide, Math.max(1, size / 6));
      }
      if (view.row >= 15 && wide > 44 && lanes === 1) {
        const text = spanName(span), room = Math.min(right, width) - Math.max(left, gutter) - 10;
        if (brush.measureText(text).width < room) {
          brush.fillStyle = "#10141b";
          brush.fillText(text, Math.max(left, gutter) + 5, spot + size / 2 + 4);
        }
      }
    }
    if (track[FAILED] && view.row >= 4) {
      brush.fillStyle = colours.late;
      brush.fillRect(x(end), top + gap, 4, view.row - 2 * gap);
    }
  }

  // The last arriver of each collective: a bar, or a dot with the number of the rank where rows are low.
  function paintLate(first, last) {
    const rowOf = new Map();
    for (let row = first; row < last; row++) rowOf.set(view.order[row], row);
    for (const { last, lead, at, open } of collectives) {
      const row = last && lead > 0 ? rowOf.get(last[0]) : undefined;
      const left = x(at);
      if (row === undefined || left < gutter || left > width) continue;
      brush.fillStyle = colours.late;
      if (view.row >= 8) {
        brush.fillRect(left - 1.5, y(row), 3, view.row);
        continue;
      }
      const middle = Math.max(AXIS + 8, Math.min(height - 8, y(row) + view.row / 2));
      brush.beginPath();
      brush.arc(left, middle, 4, 0, 7);
      brush.fill();
      if (lead < (view.to - view.from) * 0.01 && !open) continue;
      const text = "rank " + tracks[last[0]][RANK], room = brush.measureText(text).width;
      const start = left + 10 + room < width ? left + 8 : left - 12 - room;
      brush.fillStyle = colours.card;
      brush.fillRect(start - 3, middle - 8, room + 6, 16);
      brush.fillStyle = colours.late;
      brush.fillText(text, start, middle + 4);
    }
  }

  // The picked span, and lines from the last arriver of its collective to the ranks that waited.
  function paintPicked(first, last) {
    const picked = view.picked ?? view.hover;
    if (!picked) return;
    const span = tracks[picked.track][SPANS][picked.span];
    const collective = span[COLLECTIVE] === null ? null : collectives[span[COLLECTIVE]];
    if (collective) {
      const at = x(collective.at);
      brush.strokeStyle = colours.late;
      brush.setLineDash([4, 3]);
      brush.beginPath();
      brush.moveTo(at, Math.max(AXIS, y(first)));
      brush.lineTo(at, Math.min(height, y(last)));
      brush.stroke();
      brush.setLineDash([]);
      for (let row = first; row < last && view.row >= 4; row++) {
        const other = tracks[view.order[row]][SPANS].find((other) => other[COLLECTIVE] === span[COLLECTIVE]);
        if (!other) continue;
        brush.strokeRect(x(other[START]) + 0.5, y(row) + 0.5, Math.max(2, x(other[END]) - x(other[START])) - 1, view.row - 1);
      }
    }
    const row = view.order.indexOf(picked.track);
    brush.strokeStyle = colours.select;
    brush.lineWidth = 2;
    brush.strokeRect(x(span[START]), y(row), Math.max(3, x(span[END]) - x(span[START])), Math.max(3, view.row));
    brush.lineWidth = 1;
  }

  function paintLabels(first, last) {
    brush.fillStyle = colours.card;
    brush.fillRect(0, 0, gutter, height);
    brush.textBaseline = "middle";
    const step = Math.max(1, Math.ceil(14 / view.row));
    for (let row = Math.ceil(first / step) * step; row < last; row += step) {
      const track = tracks[view.order[row]];
      const top = y(row) + Math.max(view.row, 12) / 2;
      if (top < AXIS) continue;
      brush.fillStyle = track[FAILED] ? colours.late : colours.soft;
      brush.textAlign = "right";
      brush.fillText((step === 1 || row === 0 ? "rank " : "") + track[RANK], gutter - 10, top);
    }
    brush.textAlign = "left";
    brush.textBaseline = "alphabetic";
  }

  function paintAxis({ times, digits }) {
    brush.fillStyle = colours.card;
    brush.fillRect(0, 0, width, AXIS);
    brush.strokeStyle = colours.line;
    brush.fillStyle = colours.soft;
    for (const at of times) {
      const left = Math.round(x(at)) + 0.5;
      line(left, AXIS - 5, AXIS);
      const text = (at / 1000).toFixed(digits) + " s";
      if (left >= gutter && left + brush.measureText(text).width + 4 < width) brush.fillText(text, left + 4, AXIS - 9);
    }
    brush.beginPath();
    brush.moveTo(0, AXIS - 0.5);
    brush.lineTo(width, AXIS - 0.5);
    brush.stroke();
  }

  // Selection.
  function find(px, py) {
    const row = Math.floor((py - AXIS + chart.scrollTop) / view.row);
    if (py < AXIS || row < 0 || row >= view.order.length || px < gutter) return null;
    const track = view.order[row], spans = tracks[track][SPANS];
    let best = null, distance = 5;
    spans.forEach((span, at) => {
      const away = Math.max(x(span[START]) - px, px - x(span[END]), 0);
      if (away < distance || (away === distance && best === null)) [best, distance] = [{ track, span: at }, away];
    });
    return best;
  }
  function describe({ track, span: at }) {
    const span = tracks[track][SPANS][at];
    const parts = [`${seconds(span[START])} to ${seconds(span[END])}`, seconds(span[END] - span[START])];
    if (span[REQUESTS]) parts.push(plural(span[REQUESTS], "request"));
    if (span[OPEN]) parts.push("no reply");
    if (span[COLLECTIVE] !== null) {
      const { rank, lead, arrived, size } = collectives[span[COLLECTIVE]];
      parts.push(`${arrived}${size ? " of " + size : ""} arrived`, `last: ${rank}, ${seconds(lead)} after the one before`);
    }
    return parts.join(", ");
  }
  function pick(picked, { reveal = true } = {}) {
    view.picked = picked;
    const track = tracks[picked.track], span = track[SPANS][picked.span];
    const row = view.order.indexOf(picked.track);
    if (reveal) {
      const top = row * view.row, room = chart.clientHeight - AXIS;
      if (top < chart.scrollTop || top + view.row > chart.scrollTop + room) chart.scrollTop = top - room / 2;
      if (span[END] < view.from || span[START] > view.to) moveTo(span[START] - (view.to - view.from) / 3, view.to - view.from);
    }
    byId("detail-title").textContent = `${rankName(track)}: ${spanName(span)}`;
    const exit = track[EXIT] ? `; ${track[EXIT][1]} at ${seconds(track[EXIT][0])}` : "";
    byId("detail-text").textContent = describe(picked) + exit;
    const messages = span[MESSAGES].slice(0, TABLE_MAX).map(([at, reply, text]) =>
      make("tr", {}, cell(seconds(at), "num"), cell(reply ? "to rank" : "from rank", "nowrap"), cell(text, "code")));
    const missing = span[REQUESTS] > 0 && messages.length === 0;
    const empty = make("p", { className: "why" }, missing ? "The messages are left out." : "No message belongs to this span.");
    byId("detail-table").replaceChildren(messages.length ? table([["time", "num"], ["direction"], ["message"]], messages) : empty);
    history.replaceState(null, "", `#track=${picked.track}&span=${picked.span}`);
    draw();
  }
  function step(rows, spans) {
    const picked = view.picked;
    if (!picked) {
      const track = view.order.find((at) => tracks[at][SPANS].length > 0);
      return track === undefined ? undefined : pick({ track, span: 0 });
    }
    if (spans) {
      const count = tracks[picked.track][SPANS].length;
      return pick({ track: picked.track, span: Math.max(0, Math.min(count - 1, picked.span + spans)) });
    }
    let row = view.order.indexOf(picked.track);
    const start = tracks[picked.track][SPANS][picked.span][START];
    do row = Math.max(0, Math.min(view.order.length - 1, row + rows));
    while (row > 0 && row < view.order.length - 1 && tracks[view.order[row]][SPANS].length === 0);
    const spansThere = tracks[view.order[row]][SPANS];
    if (!spansThere.length) return undefined;
    const near = spansThere.reduce((best, span, at) => (Math.abs(span[START] - start) < Math.abs(spansThere[best][START] - start) ? at : best), 0);
    return pick({ track: view.order[row], span: near });
  }

  // Mouse, touch and keys.
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => {
    drag = { px: event.clientX, from: view.from, moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    if (drag) {
      const moved = event.clientX - drag.px;
      drag.moved ||= Math.abs(moved) > 4;
      if (drag.moved) moveTo(drag.from - (moved / (width - gutter)) * (view.to - view.from), view.to - view.from);
      tip.hidden = true;
      return;
    }
    view.hover = find(event.clientX - box.left, event.clientY - box.top);
    tip.hidden = !view.hover;
    if (view.hover) {
      const track = tracks[view.hover.track];
      tip.textContent = `${rankName(track)}: ${spanName(track[SPANS][view.hover.span])}, ${describe(view.hover)}`;
      tip.style.left = Math.min(event.clientX + 14, innerWidth - 440) + "px";
      tip.style.top = event.clientY + 16 + "px";
    }
    draw();
  });
  canvas.addEventListener("pointerup", (event) => {
    const box = canvas.getBoundingClientRect();
    const found = drag && !drag.moved && find(event.clientX - box.left, event.clientY - box.top);
    drag = null;
    if (found) pick(found, { reveal: false });
  });
  canvas.addEventListener("pointercancel", () => (drag = null));
  canvas.addEventListener("pointerleave", () => {
    view.hover = null;
    tip.hidden = true;
    draw();
  });
  canvas.addEventListener("dblclick", (event) => zoom(0.4, timeAt(event.clientX - canvas.getBoundingClientRect().left)));
  chart.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 300), timeAt(event.clientX - canvas.getBoundingClientRect().left));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      moveTo(view.from + ((event.deltaX || event.deltaY) / (width - gutter)) * (view.to - view.from), view.to - view.from);
    }
  }, { passive: false });
  chart.addEventListener("scroll", draw);
  const keys = {
    ArrowLeft: () => step(0, -1), ArrowRight: () => step(0, 1), ArrowUp: () => step(-1, 0), ArrowDown: () => step(1, 0),
    PageUp: () => step(-10, 0), PageDown: () => step(10, 0), Home: () => step(0, -1e9), End: () => step(0, 1e9),
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1.6), 0: () => moveTo(origin, limit * 1.02 - origin),
    s: () => show(startUp.begin, startUp.end), "[": () => rows(view.row / 1.5), "]": () => rows(view.row * 1.5),
    Enter: () => byId("detail").focus(),
  };
  chart.addEventListener("keydown", (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  });
  const click = (id, act) => byId(id).addEventListener("click", act);
  click("in", keys["+"]);
  click("out", keys["-"]);
  click("all", keys[0]);
  click("startup", keys.s);
  click("lower", keys["["]);
  click("taller", keys["]"]);

  // Lateness behind the median arrival of each collective.
  const behind = tracks.map(() => ({ sum: 0, times: 0, last: 0 }));
  const arrivals = collectives.map(() => []);
  tracks.forEach((track, at) => {
    for (const span of track[SPANS]) if (span[COLLECTIVE] !== null) arrivals[span[COLLECTIVE]].push([span[START], at]);
  });
  arrivals.forEach((arrived, number) => {
    if (!arrived.length) return;
    arrived.sort((a, b) => a[0] - b[0]);
    const median = arrived[arrived.length >> 1][0];
    for (const [start, at] of arrived) {
      if (start <= median) continue;
      behind[at].sum += start - median;
      behind[at].times += 1;
    }
    const { last } = collectives[number];
    if (last) behind[last[0]].last += 1;
  });
  const firstMessage = (at) => tracks[at][SPANS].find((span) => span[REQUESTS] > 0)?.[START] ?? Infinity;
  byId("order").addEventListener("change", (event) => {
    const order = tracks.map((_, at) => at);
    if (event.target.value === "first") order.sort((a, b) => firstMessage(b) - firstMessage(a) || a - b);
    if (event.target.value === "late") order.sort((a, b) => behind[b].sum - behind[a].sum || a - b);
    view.order = order;
    chart.scrollTop = 0;
    draw();
  });
  byId("goto").addEventListener("change", (event) => {
    const at = tracks.findIndex((track) => track[RANK] === Number(event.target.value));
    if (at >= 0 && tracks[at][SPANS].length) pick({ track: at, span: 0 });
  });

  // Figures and tables.
  const rankLink = (at) =>
    make("button", { className: "link", type: "button", on: { click: () => tracks[at][SPANS].length && pick({ track: at, span: 0 }) } }, rankName(tracks[at]));
  function tile(title, figure, about) {
    return make("div", { className: "tile" }, make("p", {}, title), make("strong", {}, figure), make("p", {}, about));
  }
  function tiles() {
    const job = head.jobs[0];
    const made = [];
    if (job) {
      made.push(tile("Start-up", seconds(job.end - job.begin), "from the registration of the job to the last reply"));
      const most = job.phases.reduce((most, phase) => (phase.sum > most.sum ? phase : most));
      made.push(tile("Most time of all ranks", most.name, `${seconds(most.sum)} in total: ${most.about}`));
    }
    const longest = collectives.reduce((longest, other) => (!longest || other.longest > longest.longest ? other : longest), null);
    if (longest) made.push(tile("Longest wait in a fence", seconds(longest.longest), `${longest.name}, last: ${longest.rank}`));
    const failed = tracks.filter((track) => track[FAILED]);
    const unfinished = failed.length ? `${plural(failed.length, "rank")} failed, first ${rankName(failed[0])}` : `${plural(tracks.length, "rank")} shown`;
    made.push(tile("Recorded", seconds(limit), unfinished));
    byId("tiles").replaceChildren(...made);
  }
  function phases() {
    byId("phases").replaceChildren(...head.jobs.slice(0, 20).flatMap((job) => {
      const most = Math.max(1, ...job.phases.map((phase) => phase.sum));
      const shown = job.phases.filter((phase) => phase.sum > 0);
      const rows = shown.map(({ name, about, sum, max, slowest }) => {
        const named = make("td");
        slowest.forEach(([at, ms], number) => {
          const end = number + 1 < slowest.length ? ", " : "";
          named.append(make("span", { className: "nowrap" }, rankLink(at), ` (${seconds(ms)})${end}`), " ");
        });
        const meter = make("span", { className: "meter", style: { width: `${(100 * sum) / most}%`, background: `var(--${name === "own" ? "soft" : name})` } });
        const title = make("td", {}, name, make("div", { className: "why" }, about));
        return make("tr", {}, title, cell(meter, "wide"), cell(seconds(sum), "num"), cell(seconds(max), "num"), named);
      });
      const title = severalJobs ? [make("p", { className: "about" }, `${job.name}: ${job.about}`)] : [];
      return [...title, table([["phase"], [""], ["all ranks", "num"], ["longest", "num"], ["slowest ranks"]], rows, "whole")];
    }));
  }
  function late() {
    const order = behind.map((late, at) => ({ ...late, at })).filter((late) => late.sum > 0);
    order.sort((a, b) => b.sum - a.sum || a.at - b.at);
    const rows = order.slice(0, 10).map(({ at, sum, times, last }) =>
      make("tr", {}, cell(rankLink(at)), cell(seconds(sum), "num"), cell(times, "num"), cell(last, "num")));
    const none = make("p", { className: "about" }, "No rank arrived later than the median arrival by a millisecond or more.");
    const about = make("p", { className: "why" }, "Arrivals in fences later than the median arrival, by their sum.");
    const columns = [["rank"], ["behind", "num"], ["fences", "num"], ["last in", "num"]];
    byId("late").replaceChildren(...(rows.length ? [about, table(columns, rows)] : [none]));
  }
  function fences() {
    const rows = collectives.slice(0, TABLE_MAX).map((collective) => {
      const { name, arrived, size, first, at, waited, longest, lead, rank, last, open } = collective;
      const go = () => {
        show(first, Math.max(at, first + longest));
        if (last) pick({ track: last[0], span: last[1] });
      };
      const link = make("button", { className: "link", type: "button", on: { click: go } }, name);
      const count = `${arrived}${size && size !== arrived ? " of " + size : ""}${open ? ", open" : ""}`;
      return make("tr", {}, cell(link), cell(count, "num"), cell(seconds(first), "num"), cell(seconds(at), "num"),
        cell(seconds(waited), "num"), cell(seconds(longest), "num"), cell(last ? rankName(tracks[last[0]]) : rank), cell(seconds(lead), "num"));
    });
    const columns = [["fence"], ["ranks", "num"], ["first", "num"], ["last", "num"], ["waits in total", "num"], ["longest wait", "num"],
      ["last to arrive"], ["after the one before", "num"]];
    const more = collectives.length - rows.length;
    byId("fences").replaceChildren(rows.length ? table(columns, rows) : make("p", { className: "about" }, "The recordings have no fence."),
      ...(more > 0 ? [make("p", { className: "why" }, `and ${more} more`)] : []));
  }
  function legend() {
    const used = new Set(tracks.flatMap((track) => track[SPANS].map(phaseName)));
    const items = head.phases.filter((name) => used.has(name)).map((name) =>
      make("li", {}, make("span", { className: "swatch", style: { background: `var(--${name})` } }), name));
    items.push(make("li", {}, make("span", { className: "swatch", style: { background: "var(--life)" } }), "process alive"));
    items.push(make("li", {}, make("span", { className: "swatch mark" }), "last to arrive in a fence, failed, or no reply"));
    byId("legend").replaceChildren(...items);
  }

  byId("about").textContent = head.jobs.length === 1 ? `${head.jobs[0].name}: ${head.jobs[0].about}` : plural(head.jobs.length, "job");
  byId("foot").textContent = `Recorded by ${head.program}.`;
  byId("notes").replaceChildren(...head.notes.map((note) => make("li", {}, note)));
  readColours();
  legend();
  tiles();
  phases();
  late();
  fences();
  fitRows();
  layout();
  paint();
  addEventListener("resize", layout);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColours();
    draw();
  });
  const link = new URLSearchParams(location.hash.slice(1));
  const wanted = { track: Number(link.get("track")), span: Number(link.get("span")) };
  if (link.has("track") && tracks[wanted.track]?.[SPANS][wanted.span]) pick(wanted);
  // For tests: what was drawn.
  Object.assign(chart.dataset, { ranks: tracks.length, spans: tracks.reduce((sum, track) => sum + track[SPANS].length, 0) });
})();
