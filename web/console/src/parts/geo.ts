// Positions on a plane: near a place a degree of longitude is shorter by the cosine of the latitude.
export interface Spot { device: string; lat: number; lon: number }
export interface Box { west: number; east: number; south: number; north: number }
export interface Gathered { lat: number; lon: number; devices: string[] }

// ringsOf are the outer and inner rings of a fence, as [longitude, latitude]; none where the geometry is no polygon.
export function ringsOf(geometry: string): [number, number][][] {
  try {
    const g = JSON.parse(geometry) as { type?: string; coordinates?: unknown; geometry?: { type?: string; coordinates?: unknown } }
    const shape = g.geometry ?? g
    const c = shape.coordinates
    if (shape.type === 'Polygon' && Array.isArray(c)) return c as [number, number][][]
    if (shape.type === 'MultiPolygon' && Array.isArray(c)) return (c as [number, number][][][]).flat()
  } catch { /* it is none */ }
  return []
}

// around is the box of everything with a margin, a kilometre at least.
export function around(points: [number, number][]): Box {
  const lon = points.map((p) => p[0])
  const lat = points.map((p) => p[1])
  const b = { west: Math.min(...lon), east: Math.max(...lon), south: Math.min(...lat), north: Math.max(...lat) }
  const mid = (b.south + b.north) / 2
  const dLat = Math.max((b.north - b.south) * 0.1, 0.005)
  const dLon = Math.max((b.east - b.west) * 0.1, 0.005 / Math.max(Math.cos((mid * Math.PI) / 180), 0.05))
  return { west: b.west - dLon, east: b.east + dLon, south: b.south - dLat, north: b.north + dLat }
}

// fitted is a box with the proportions of a picture, seen from above.
export function fitted(b: Box, width: number, height: number): Box {
  const lat = (b.north + b.south) / 2
  const lon = (b.east + b.west) / 2
  const k = Math.max(Math.cos((lat * Math.PI) / 180), 0.05)
  const w = (b.east - b.west) * k
  const h = b.north - b.south
  const scale = Math.max(w / width, h / height)
  return { west: lon - (scale * width) / 2 / k, east: lon + (scale * width) / 2 / k, south: lat - (scale * height) / 2, north: lat + (scale * height) / 2 }
}

export const zoomed = (b: Box, by: number): Box => {
  const [lat, lon, h, w] = [(b.north + b.south) / 2, (b.east + b.west) / 2, ((b.north - b.south) / 2) * by, ((b.east - b.west) / 2) * by]
  return { west: lon - w, east: lon + w, south: lat - h, north: lat + h }
}
export const panned = (b: Box, x: number, y: number): Box => {
  const [dx, dy] = [(b.east - b.west) * x, (b.north - b.south) * y]
  return { west: b.west + dx, east: b.east + dx, south: b.south + dy, north: b.north + dy }
}

// gathered are devices by the cells of a picture, so that no two marks cover each other.
export function gathered(spots: Spot[], b: Box, width: number, height: number, cell = 28): Gathered[] {
  const cells = new Map<string, Gathered>()
  for (const s of spots) {
    if (s.lat < b.south || s.lat > b.north || s.lon < b.west || s.lon > b.east) continue
    const key = `${Math.floor(((s.lon - b.west) / (b.east - b.west)) * width / cell)}/${Math.floor(((b.north - s.lat) / (b.north - b.south)) * height / cell)}`
    const g = cells.get(key)
    if (g) g.devices.push(s.device)
    else cells.set(key, { lat: s.lat, lon: s.lon, devices: [s.device] })
  }
  return [...cells.values()]
}

// scale is a round length in metres, and how wide it is in the picture.
export function scale(b: Box, width: number): { metres: number; pixels: number } {
  const lat = (b.north + b.south) / 2
  const across = (b.east - b.west) * 111_320 * Math.max(Math.cos((lat * Math.PI) / 180), 0.05)
  const raw = across / 5
  const power = 10 ** Math.floor(Math.log10(raw))
  const metres = [5, 2, 1].map((m) => m * power).find((m) => m <= raw) ?? power
  return { metres, pixels: (metres / across) * width }
}

// Topology is a map whose lines are shared: arcs of whole numbers, each point as its distance from the one before.
export interface Topology { transform: { scale: number[]; translate: number[] }; arcs: number[][][]; objects: { land: { geometries: { arcs: number[][][] }[] } } }

// ringsOfLand are the outlines of the land, as [longitude, latitude]. An arc that a ring takes the other way has the complement of its number.
export function ringsOfLand(t: Topology): [number, number][][] {
  const [kx, ky] = t.transform.scale as [number, number]
  const [x0, y0] = t.transform.translate as [number, number]
  const arcs = t.arcs.map((arc) => {
    let [x, y] = [0, 0]
    return arc.map(([dx, dy]) => [(x += dx!) * kx + x0, (y += dy!) * ky + y0] as [number, number])
  })
  return t.objects.land.geometries.flatMap((g) => g.arcs.flat().map((ring) => ring.flatMap((i, n) => {
    const arc = i < 0 ? arcs[~i]!.toReversed() : arcs[i]!
    return n === 0 ? arc : arc.slice(1) // it begins where the one before ends
  })))
}

// touching are the rings whose boxes meet a box.
export const touching = (rings: [number, number][][], b: Box) => rings.filter((r) => {
  const [lon, lat] = [r.map((p) => p[0]), r.map((p) => p[1])]
  return Math.min(...lon) <= b.east && Math.max(...lon) >= b.west && Math.min(...lat) <= b.north && Math.max(...lat) >= b.south
})
