"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const hidden = new Set();
  const charts = [];
  const pen = document.createElement("canvas").getContext("2d");
  const MOST_ROWS = 4;  // of a legend; beyond, the buttons above the charts name the variants
  let printing = false;
  let chosen = null;  // theme that the reader chose

  const css = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const escape = echarts.format.encodeHTML;
  const shown = (value) => {
    if (value == null || Number.isNaN(value)) return "-";
    const size = Math.abs(value);
    return size >= 1e7 || (size < 1e-5 && size > 0) ? value.toExponential(2)
      : value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
  };
  const worded = (axis) => (value) => axis.percent ? shown(100 * value) + " %" : shown(value);

  const RECORD = -1;  // in place of a variant: what a log recorded
  const named = (v) => v === RECORD ? "as recorded" : data.variants[v];

  function style(v, dash) {
    if (v === RECORD) return { color: css("--soft"), type: "solid" };
    const dashes = ["solid", [7, 4], [2, 3], [8, 3, 2, 3]];
    return { color: css(`--v${v % 8}`), type: dashes[dash ?? Math.floor(v / 8) % 3] };
  }

  function axis(of, more) {
    const soft = css("--soft"), rule = css("--rule");
    return {
      logBase: of.base ?? 10, type: of.log ? "log" : of.names ? "category" : "value", data: of.names,
      min: of.min ?? null, max: of.max ?? null, scale: of.min == null, name: of.name,
      interval: of.percent && of.max === 1 ? .25 : undefined,
      nameLocation: "middle", nameTextStyle: { color: soft, fontSize: 12 },
      axisLabel: { color: soft, hideOverlap: true, showMaxLabel: of.max === "dataMax" ? false : null,
                   showMinLabel: of.log && of.min === "dataMin" ? false : null, formatter: of.names ? undefined : worded(of) },
      axisLine: { lineStyle: { color: rule } }, axisTick: { lineStyle: { color: rule } },
      splitLine: { show: true, lineStyle: { color: rule, opacity: .6 } },
      minorSplitLine: { show: false }, ...more,
    };
  }

  function lines(line, k, at, xs, step) {
    const { color, type } = style(line.v, line.dash), name = named(line.v);
    const x = line.x ?? xs, common = {
      type: "line", name, xAxisIndex: at, yAxisIndex: at, symbol: x.length === 1 || line.marked ? "circle" : "none", symbolSize: 7,
      step: line.step ?? step ?? false, connectNulls: false, itemStyle: { color },
    };
    const made = [{
      ...common, id: `line:${at}:${line.v}:${k}`, data: x.map((one, i) => [one, line.y[i]]),
      lineStyle: { color, type, width: line.v === RECORD ? 1 : 2 }, z: line.v === RECORD ? 2 : 3, emphasis: { disabled: true },
      ...(line.v === RECORD ? { areaStyle: { color, opacity: .3 } } : {}),
    }];
    if (!line.low) return made;
    const band = (id, values, area) => made.push({
      ...common, id: `${id}:${at}:${line.v}:${k}`, data: x.map((one, i) => [one, values[i]]), symbol: "none",
      stack: `band-${at}-${k}`, stackStrategy: "all", silent: true, z: 1,
      lineStyle: { opacity: 0 }, areaStyle: area, tooltip: { show: false }, emphasis: { disabled: true },
    });
    band("low", line.low, { opacity: 0 });
    band("high", line.high.map((one, i) => one == null ? null : one - line.low[i]), { color, opacity: .13 });
    return made;
  }

  /** The positions that no other one beats: none is as small in both and smaller in one; with `more`, as large in x. */
  function front(positions, more) {
    const found = [], sign = more ? -1 : 1;
    for (const one of [...positions].sort((a, b) => sign * (a[0] - b[0]) || a[1] - b[1]))
      if (!found.length || one[1] < found.at(-1)[1]) found.push(one);
    return found;
  }

  const seen = (panel) => panel.dots.filter((dot) => !hidden.has(dot.v));

  /** What stands at each dot: its variant, or values that lie in one place, where no label or dot is in the way. */
  function labels(by, pixels, size) {
    const said = new Map(), taken = [];
    for (const [v, mine] of by) if (!hidden.has(v)) for (const dot of mine) {
      const [x, y] = pixels(dot);
      taken.push({ dot, left: x - 6, right: x + 6, low: y - 6, high: y + 6 });
    }
    const near = (one, other) => {
      const [a, b] = [pixels(one), pixels(other)];
      return Math.abs(a[0] - b[0]) < 12 && Math.abs(a[1] - b[1]) < 12;
    };
    for (const [v, mine] of by) {
      if (hidden.has(v)) continue;
      for (let k = 0, last; k < mine.length; k = last + 1) {
        for (last = k; last + 1 < mine.length && near(mine[k], mine[last + 1]);) last++;
        const one = mine[k], values = last > k ? `${one.value}–${mine[last].value}` : one.value;
        const text = !one.value ? mine.length === 1 && data.variants[v]
          : last - k + 1 === mine.length ? data.variants[v] : values;
        if (!text) continue;
        const [x, y] = pixels(one), wide = 6.8 * text.length + 2;
        for (const [position, left, low] of [["top", x - wide / 2, y + 8], ["bottom", x - wide / 2, y - 22],
          ["right", x + 9, y - 7], ["left", x - 9 - wide, y - 7]]) {
          const box = { left, right: left + wide, low, high: low + 14 };
          if (box.left < 0 || box.right > size[0] || box.low < 0 || box.high > size[1]) continue;
          if (taken.some((other) => other.dot !== one && box.left < other.right && other.left < box.right
            && box.low < other.high && other.low < box.high)) continue;
          said.set(one, { text, position });
          taken.push(box);
          break;
        }
      }
    }
    return said;
  }

  function dots(panel, at, size) {
    const reachable = seen(panel).filter((dot) => !dot.bound).map((dot) => dot.at);
    const made = [{
      type: "line", id: `front:${at}`, name: "front", xAxisIndex: at, yAxisIndex: at, data: front(reachable, panel.x.more),
      showSymbol: false, silent: true, z: 2, lineStyle: { color: css("--soft"), width: 2, type: "dashed" },
    }];
    const place = ["xci", "yci"].map((ci, k) => {  // from values to pixels
      const { min, max } = around(panel, k, ci), log = (k ? panel.y : panel.x).log;
      const of = (value) => log ? Math.log(Math.max(value, Number.MIN_VALUE)) : value;
      return (value) => size[k] * (of(value) - of(min)) / ((of(max) - of(min)) || 1);
    });
    const by = Map.groupBy ? Map.groupBy(panel.dots, (dot) => dot.v)
      : panel.dots.reduce((map, dot) => map.set(dot.v, [...(map.get(dot.v) ?? []), dot]), new Map());
    const said = labels(by, (dot) => place.map((to, k) => to(dot.at[k])), size);
    for (const [v, mine] of by) {
      const { color, type } = style(v), name = data.variants[v];
      const shapes = ["circle", "rect", "triangle", "diamond"];
      made.push({
        type: "scatter", id: `dots:${at}:${v}`, name, xAxisIndex: at, yAxisIndex: at, z: 4,
        symbol: shapes[Math.floor(v / 8) % 4], symbolSize: mine.length > 1 ? 10 : 13, itemStyle: { color, opacity: 1 },
        label: { color: css("--ink"), fontSize: mine.length > 1 ? 11 : 12 },
        data: mine.map((dot) => ({
          value: dot.at, dot, label: { show: said.has(dot), position: said.get(dot)?.position, formatter: () => said.get(dot).text },
          ...(dot.bound ? { itemStyle: { color: css("--paper"), borderColor: color, borderWidth: 2 } } : {}),
        })),
      });
      if (panel.path && mine.length > 1) made.push({
        type: "line", id: `path:${at}:${v}`, name, xAxisIndex: at, yAxisIndex: at, data: mine.map((dot) => dot.at),
        showSymbol: false, silent: true, z: 1, lineStyle: { color, type, width: 1, opacity: .7 },
      });
      const whiskers = mine.flatMap((dot) => [
        ...(dot.xci ? [[[dot.xci[0], dot.at[1]], [dot.xci[1], dot.at[1]]]] : []),
        ...(dot.yci ? [[[dot.at[0], dot.yci[0]], [dot.at[0], dot.yci[1]]]] : []),
      ]);
      if (whiskers.length) made.push({
        type: "line", id: `whiskers:${at}:${v}`, name, xAxisIndex: at, yAxisIndex: at, showSymbol: false,
        silent: true, z: 2, lineStyle: { color, width: 1.5 },
        data: whiskers.flatMap((pair) => [...pair, [null, null]]),
      });
    }
    return made;
  }

  function tooltip(panels) {
    const row = (v, text) => `<span style="color:${style(v).color}">&#9644;</span> `
      + `${escape(named(v))} <b>${escape(text)}</b>`;
    const of = (param) => {
      const [kind, at, v, k] = param.seriesId.split(":");
      return { kind, panel: panels[+at], v: +v, line: panels[+at].lines?.[+k] };
    };
    return (given) => {
      if (!Array.isArray(given)) {
        const { kind, panel, v } = of(given);
        if (kind !== "dots") return "";
        const dot = given.data.dot;
        return row(v, "") + (dot.label ? `<br>${escape(dot.label)}` : "")
          + [["x", 0, dot.xci], ["y", 1, dot.yci]].map(([key, at, ci]) =>
            `<br>${escape(panel[key].name)}: <b>${shown(dot.at[at])}</b>`
            + (ci ? ` [${shown(ci[0])}, ${shown(ci[1])}]` : "")).join("");
      }
      let head = null;
      const said = new Map();
      for (const param of given) {
        const { kind, panel, v, line } = of(param);
        if (kind !== "line" || param.value[1] == null) continue;
        head ??= `${escape(panel.x.name)}: <b>${shown(param.value[0])}</b>`;
        const k = param.dataIndex, where = line.label ? ` ${escape(line.label)}` : "";
        const band = line.low && line.low[k] !== line.high[k]
          ? ` (${worded(panel.y)(line.low[k])} to ${worded(panel.y)(line.high[k])})` : "";
        const rows = said.get(panel) ?? [];
        rows.push(row(v, worded(panel.y)(param.value[1])) + band + where);
        said.set(panel, rows);
      }
      const blocks = [...said].map(([panel, rows]) => (said.size > 1 || panels.length > 1
        ? `<i>${escape(panel.y.name)}</i><br>` : "") + rows.slice(0, 14).join("<br>")
        + (rows.length > 14 ? `<br>and ${rows.length - 14} more` : ""));
      return blocks.length ? [head, ...blocks].join("<br>") : "";
    };
  }

  /** From below the least to above the most of the points, so that equal ones lie in the middle. */
  function around(panel, at, ci) {
    const known = seen(panel), values = (known.length ? known : panel.dots).flatMap((dot) => [dot.at[at], ...(dot[ci] ?? [])]);
    const least = Math.min(...values), most = Math.max(...values);
    const axisLabel = { color: css("--soft"), hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: shown };
    if ((at ? panel.y : panel.x).log && least > 0) return { min: least / 1.5, max: most * 1.5, axisLabel };
    const margin = Math.max(.08 * (most - least), .01 * Math.abs(most), 1e-9);
    return { min: least - margin, max: most + 2 * margin, axisLabel };
  }

  /** Rows that the legend takes: all names stand there, and none is on another page. */
  function legendRows(width, names) {
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    let rows = names.length > 1 ? 1 : 0, used = 0;
    for (const name of names) {
      const wide = pen.measureText(name).width + 22 + 5 + 10;
      if (used > 0 && used + wide > width) { rows++; used = 0; }
      used += wide;
    }
    return rows;
  }

  function option(chart) {
    const { drawn } = chart;
    const panels = drawn.views ? drawn.views[chart.view] : drawn.panels;
    const zoom = drawn.zoom && !printing, phone = chart.box.clientWidth < 520;
    const width = chart.box.clientWidth, left = phone ? 44 : 64, right = phone ? 10 : 24;
    const known = [...new Set(panels.flatMap((panel) => (panel.lines ?? panel.dots).map((one) => one.v)))].sort((a, b) => a - b);
    const rows = legendRows(width, known.map(named)), legend = rows > 0 && rows <= MOST_ROWS;
    const top = 38 + (legend ? 20 * rows : 0), gap = 50, bottom = zoom ? 92 : 50;
    const each = (chart.height - 56 - bottom - gap * (panels.length - 1)) / panels.length;
    const high = top + bottom + (each + gap) * panels.length - gap;
    const scattered = panels.some((panel) => panel.dots);
    chart.high = high;
    return {
      animation: false, backgroundColor: "transparent",
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily, color: css("--ink") },
      legend: {
        show: legend, type: "plain", top: 0, left: 0, right: 0, data: known.map(named),
        selected: Object.fromEntries([RECORD, ...data.variants.keys()].map((v) => [named(v), !hidden.has(v)])),
        textStyle: { color: css("--ink") }, inactiveColor: css("--rule"), itemWidth: 22, itemHeight: 9,
      },
      grid: panels.map((_, at) => ({
        left, right, top: top + at * (each + gap), height: each,
      })),
      xAxis: panels.map((panel, at) => axis(panel.x, {
        gridIndex: at, nameGap: 28, splitLine: { show: false },
        name: at === panels.length - 1 ? panel.x.name : "", ...(panel.dots ? around(panel, 0, "xci") : {}),
      })),
      yAxis: panels.map((panel, at) => axis(panel.y, {
        gridIndex: at, nameLocation: "end", nameGap: 14, splitNumber: 4,
        nameTextStyle: { color: css("--soft"), align: "left", padding: [0, 0, 0, phone ? -38 : -58], fontSize: 12 },
        ...(panel.dots ? around(panel, 1, "yci") : {}),
      })),
      axisPointer: scattered ? {} : { link: [{ xAxisIndex: "all" }], lineStyle: { color: css("--soft") } },
      tooltip: {
        trigger: scattered ? "item" : "axis", confine: true, formatter: tooltip(panels),
        backgroundColor: css("--panel"), borderColor: css("--rule"),
        textStyle: { color: css("--ink"), fontSize: 12 }, extraCssText: "white-space:normal;max-width:90vw",
      },
      dataZoom: zoom ? [{
        type: "slider", xAxisIndex: panels.map((_, at) => at), bottom: 8, height: 20, filterMode: "filter",
        borderColor: css("--rule"), textStyle: { color: css("--soft") }, labelFormatter: shown,
        showDataShadow: false, brushSelect: false,
      }] : [],
      series: panels.flatMap((panel, at) => panel.dots ? dots(panel, at, [width - left - right, each])
        : panel.lines.flatMap((line, k) => lines(line, k, at, panel.xs ?? drawn.xs, drawn.step))),
    };
  }

  function draw(chart) {
    chart.drawnOnce = true;
    const zoomed = chart.of.getOption()?.dataZoom?.[0];
    const drawn = option(chart);
    chart.box.style.height = `${chart.high}px`;
    chart.of.resize({ width: chart.box.clientWidth, height: chart.high });
    chart.of.setOption(drawn, { notMerge: true });
    if (zoomed && !printing) chart.of.dispatchAction({ type: "dataZoom", start: zoomed.start, end: zoomed.end });
  }

  function toggle(v) {
    hidden.has(v) ? hidden.delete(v) : hidden.add(v);
    select();
  }

  function select() {
    for (const button of document.querySelectorAll(".chips [data-variant]"))
      button.setAttribute("aria-pressed", String(!hidden.has(+button.dataset.variant)));
    for (const chart of charts) {
      const { of, drawn, drawnOnce } = chart;
      if (!drawnOnce) continue;
      if (drawn.panels?.some((panel) => panel.dots)) {  // front and axes are those of what is shown
        draw(chart);
        continue;
      }
      const selected = of.getOption().legend[0].selected;
      [RECORD, ...data.variants.keys()].forEach((v) => {
        const name = named(v);
        if (selected[name] === hidden.has(v))
          of.dispatchAction({ type: hidden.has(v) ? "legendUnSelect" : "legendSelect", name }, { silent: true });
      });
    }
  }

  function theme() {
    root.dataset.theme = printing ? "light" : chosen ?? (dark.matches ? "dark" : "light");
    charts.forEach(draw);
  }

  root.dataset.theme = dark.matches ? "dark" : "light";
  for (const drawn of data.charts) {
    const box = document.getElementById(`chart-${drawn.id}`);
    const panels = (drawn.panels ?? Object.values(drawn.views)[0]).length;
    const chart = { box, drawn, height: panels === 1 ? 340 : 110 + 190 * panels };
    box.style.height = `${chart.height}px`;
    if (drawn.views) {
      const choice = document.getElementById(`view-${drawn.id}`);
      chart.view = choice.value;
      choice.addEventListener("change", () => { chart.view = choice.value; draw(chart); });
    }
    chart.of = echarts.init(box, null, { renderer: "svg", height: chart.height });
    chart.of.on("legendselectchanged", ({ name, selected }) => {
      const v = data.variants.indexOf(name);
      selected[name] ? hidden.delete(v) : hidden.add(v);
      select();
    });
    charts.push(chart);
  }

  for (const button of document.querySelectorAll(".chips [data-variant]"))
    button.addEventListener("click", () => toggle(+button.dataset.variant));
  document.getElementById("theme").addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    theme();
  });
  dark.addEventListener("change", theme);
  let waiting = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(() => charts.forEach(draw));
  });
  const print = (on) => { printing = on; theme(); };
  matchMedia("print").addEventListener("change", (event) => print(event.matches));
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));

  (async () => {
    for (const chart of charts) {  // one after the other, so that the reader can scroll meanwhile
      if (!chart.drawnOnce) draw(chart);
      await new Promise((next) => setTimeout(next));
    }
    root.dataset.ready = "";
  })();
})();
