// Colours: classes that stay apart for most eyes (after Paul Tol), and one ramp for quantities (after viridis).
const CLASSES = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#009988", "#997700", "#8877cc", "#bb5566", "#5aae61"];
const STOPS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37]];

export function classColor(code, total) {
  if (code === null || code === undefined || code < 0) return "#98a1a8";
  return total <= CLASSES.length ? CLASSES[code] : `hsl(${(code * 137.508) % 360} 55% ${code % 2 ? 46 : 60}%)`;
}

export function rampParts(share) {
  const place = Math.max(0, Math.min(1, share)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(place)), part = place - low;
  return STOPS[low].map((value, i) => Math.round(value + part * (STOPS[low + 1][i] - value)));
}
export const ramp = share => `rgb(${rampParts(share).join(" ")})`;

export const token = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const channelColor = (c, total) => total === 1 ? token("accent") : classColor(c, Math.max(total, 2));
