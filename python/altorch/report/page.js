// SPDX-License-Identifier: BSD-3-Clause
// Draws the figures, and the timeline at the detail that its width has room for.
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const { timeline } = read("rows");
  const { figures, colours } = read("figures");
  // The buttons are named one by one, because plotly has one that would send the data elsewhere.
  const config = {
    responsive: true, displaylogo: false, plotlyServerURL: "", showSendToCloud: false,
    modeBarButtons: [["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "autoScale2d", "toImage"]],
  };

  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const merge = (a, b) => {
    const both = { ...a };
    for (const [key, value] of Object.entries(b)) {
      const isObject = value && typeof value === "object" && !Array.isArray(value);
      both[key] = isObject ? merge(both[key] ?? {}, value) : value;
    }
    return both;
  };
  const themed = (layout) => {
    const axis = {
      color: style("--ink"), gridcolor: style("--line"), zeroline: false, automargin: true,
      ticks: "outside", ticklen: 4, tickcolor: "rgba(0,0,0,0)",
      title: { font: { size: 13 } }, exponentformat: "none",
    };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest",
      font: { color: style("--ink"), family: "system-ui, sans-serif", size: 13 },
      hoverlabel: { bgcolor: style("--card"), bordercolor: style("--line"), font: { color: style("--ink") } },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--faint"), activecolor: style("--ink") },
      xaxis: axis, yaxis: axis,
    };
    return merge(base, layout);
  };
  const escape = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const time = (s) =>
    s >= 1 ? `${s.toPrecision(3)} s` : s >= 1e-3 ? `${(s * 1e3).toPrecision(3)} ms` : `${(s * 1e6).toFixed(1)} us`;
  const size = (bytes) => {
    const power = Math.min(3, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
    return `${+(bytes / 1024 ** power).toFixed(1)} ${["B", "KiB", "MiB", "GiB"][power]}`;
  };

  const { names, columns: c } = timeline;
  const ranks = [...new Set(c.rank)];
  const lanes = ranks.map(() => 1);
  const calls = ranks.map(() => []);  // numbers of the rows of each rank, in the order of their begins
  const row = new Map(ranks.map((rank, place) => [rank, place]));
  c.rank.forEach((rank, i) => {
    calls[row.get(rank)].push(i);
    lanes[row.get(rank)] = Math.max(lanes[row.get(rank)], c.lane[i] + 1);
  });
  const end = (i) => c.begin_s[i] + c.seconds[i];
  const last = c.begin_s.reduce((most, _, i) => Math.max(most, end(i)), 0);
  const state = (i) => names.state[c.state[i]];
  const isOpen = (i) => state(i) === "under way" || state(i) === "failed";

  // Neighbours that are narrower than `narrow` become one bar, of at most eight times that width.
  const barsOf = (own, from, to, narrow) => {
    const bars = [];
    let open = null;
    for (const i of own) {
      if (end(i) < from || c.begin_s[i] > to) continue;
      if (c.seconds[i] >= narrow || isOpen(i)) {
        bars.push({ first: i, begin: c.begin_s[i], end: end(i), count: 1 });
        open = null;
      } else if (open && c.begin_s[i] - open.end < narrow && end(i) - open.begin < 8 * narrow) {
        open.end = Math.max(open.end, end(i));
        open.count += 1;
        open.waited += c.waited_s[i];
        if (c.seconds[i] > c.seconds[open.first]) open.first = i;
      } else {
        open = { first: i, begin: c.begin_s[i], end: end(i), count: 1, waited: c.waited_s[i] };
        bars.push(open);
      }
    }
    return bars;
  };
  const hover = (bar) => {
    const i = bar.first;
    const operation = escape(names.operation[c.operation[i]]);
    if (bar.count > 1)
      return `${bar.count} calls, the longest: ${operation}<br>rank ${c.rank[i]}, ${time(bar.end - bar.begin)}` +
        (bar.waited ? `, of which it waited ${time(bar.waited)}` : "") + "<br>zoom in to see each";
    const details = [names.dtype[c.dtype[i]], c.bytes[i] ? size(c.bytes[i]) : "", names.route[c.route[i]]];
    const state_ = { completed: "", ended: "", failed: ", failed", "under way": ", not completed" }[state(i)];
    return `<b>${operation} #${c.sequence[i]}</b>${state_}<br>rank ${c.rank[i]}, ` +
      `group ${escape(names.group[c.group[i]])}<br>${details.filter(Boolean).map(escape).join(", ")}<br>` +
      `at ${c.begin_s[i].toFixed(6)} s, ${time(c.seconds[i])}` +
      (c.waited_s[i] ? `<br>waited ${time(c.waited_s[i])} for rank ${c.waited_for[i]}` : "");
  };
  const draw = (from, to) => {
    const box = document.getElementById("timeline");
    const span = Math.max(to - from, 1e-9);
    const narrow = span / Math.min(600, Math.max(60, 6000 / ranks.length), box.clientWidth / 2);
    const traces = new Map();
    ranks.forEach((_, place) => {
      for (const bar of barsOf(calls[place], from, to, narrow)) {
        const i = bar.first, operation = names.operation[c.operation[i]], height = 0.8 / lanes[place];
        if (!traces.has(operation))
          traces.set(operation, {
            type: "bar", orientation: "h", name: escape(operation), base: [], x: [], y: [], width: [], hovertext: [],
            hovertemplate: "%{hovertext}<extra></extra>", showlegend: true,
            marker: { color: colours[operation], opacity: [], line: { color: [], width: [] } },
          });
        const trace = traces.get(operation), text = hover(bar);
        const add = (begin, length, opacity) => {
          trace.base.push(begin);
          trace.x.push(length);
          trace.y.push(place - 0.4 + height * (c.lane[i] + 0.5));
          trace.width.push(height);
          trace.hovertext.push(text);
          trace.marker.opacity.push(opacity);
          trace.marker.line.color.push(style("--alarm"));
          trace.marker.line.width.push(isOpen(i) ? 2 : 0);
        };
        const length = bar.end - bar.begin;
        if (bar.count > 1) {  // the lighter, the more of it is waiting
          add(bar.begin, length, 1 - 0.65 * Math.min(1, bar.waited / length));
          continue;
        }
        const waited = Math.min(c.waited_s[i], length);
        if (waited) add(bar.begin, waited, 0.35);
        if (waited < length || !length) add(bar.begin + waited, Math.max(length - waited, narrow / 2), 1);
      }
    });
    const order = names.operation.filter((operation) => traces.has(operation));
    const layout = themed({
      barmode: "overlay", height: 110 + ranks.length * (ranks.length > 32 ? 14 : 30) , showlegend: true,
      legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, itemclick: false, itemdoubleclick: false },
      margin: { l: 60, r: 10, t: 40, b: 45 },
      xaxis: { range: [from, to], title: { text: "time since the first call [s]" } },
      yaxis: {
        range: [ranks.length - 0.5, -0.5], fixedrange: true, showgrid: false,
        tickvals: ranks.map((_, place) => place), ticktext: ranks.map((rank) => `rank ${rank}`),
      },
    });
    return Plotly.react(box, order.map((operation) => traces.get(operation)), layout, config);
  };

  const first = c.begin_s.reduce((least, begin) => Math.min(least, begin), last);
  const whole = () => [first - (last - first) * 0.01, last + (last - first) * 0.01];
  let shown = whole();
  const all = () => {
    figures.forEach(({ data, layout }, place) =>
      Plotly.react(document.getElementById(`figure-${place}`), data, themed(layout),
        { ...config, displayModeBar: false }));
    if (ranks.length) draw(...shown);
  };
  all();
  if (ranks.length)
    document.getElementById("timeline").on("plotly_relayout", (event) => {
      if (event["xaxis.autorange"]) shown = whole();
      else if ("xaxis.range[0]" in event) shown = [event["xaxis.range[0]"], event["xaxis.range[1]"]];
      else return;
      draw(...shown);
    });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
})();
