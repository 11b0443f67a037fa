package rules

import (
	"fmt"
	"runtime"
	"testing"
	"unsafe"

	"pgregory.net/rapid"

	"weir/model"
	"weir/rules/window"
)

// tenRules are ten comparisons over one metric, natively or as expressions; none of them fires on 20.
func tenRules(asCEL bool) []model.RuleView {
	var rules []model.RuleView
	for i := range 10 {
		text := hot(float64(80 + i))
		if asCEL {
			text = celThreshold(fmt.Sprintf(`"temp" in m && m["temp"] > %d.0`, 80+i))
		}
		rules = append(rules, view(fmt.Sprintf("r%d", i), text))
	}
	return rules
}

func BenchmarkEval(b *testing.B) {
	for name, asCEL := range map[string]bool{"ten comparisons": false, "ten expressions": true} {
		b.Run(name, func(b *testing.B) {
			c := newTestCompiler(b, Limits{})
			var programs []*Program
			for _, v := range tenRules(asCEL) {
				programs = append(programs, mustCompile(b, c, v.Definition))
			}
			var s Sample
			in := &Input{Readings: readings("temp", 20.0)}
			var st State
			var out Verdict
			b.ReportAllocs()
			for b.Loop() {
				s.bind(in)
				s.at = &in.Readings[0]
				for _, p := range programs {
					p.eval(&st, &s, &out)
				}
			}
		})
	}
}

func BenchmarkApply(b *testing.B) {
	for name, asCEL := range map[string]bool{"ten comparisons": false, "ten expressions": true} {
		b.Run(name, func(b *testing.B) {
			w := newBench(b, Limits{})
			w.install(1, tenRules(asCEL)...)
			in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Readings: readings("temp", 20.0)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				in.Offset++
				in.Device = Device{ID: int64(i % 1000), Token: "device"}
				w.e.Apply(in, w.emit)
			}
		})
	}
}

// BenchmarkSliding judges one reading by the average of a window that holds so many.
func BenchmarkSliding(b *testing.B) {
	for _, n := range []int{60, 2000} {
		b.Run(fmt.Sprintf("%d samples", n), func(b *testing.B) {
			w := newBench(b, Limits{})
			w.install(1, view("mean", fmt.Sprintf(`{"name":"mean","type":"aggregate","windowMode":"sliding","agg":"avg","metric":"temp","op":"gt","threshold":80,"window":"%ds","lateness":"0s"}`, n)))
			in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Device: testDevice(1), Readings: readings("temp", 20.1)}
			b.ReportAllocs()
			next := func() {
				in.Offset++
				in.Occurred += 1_000_000
				w.e.Apply(in, w.emit)
			}
			for range n {
				next()
			}
			for b.Loop() {
				next()
			}
		})
	}
}

func TestApplyIsFreeOfAllocationsWhileNothingFires(t *testing.T) {
	w := newBench(t, Limits{})
	w.install(1, tenRules(false)...)
	in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Device: testDevice(1), Readings: readings("temp", 20.0, "hum", 1.0)}
	w.e.Apply(in, w.emit)
	if n := testing.AllocsPerRun(100, func() { w.e.Apply(in, w.emit) }); n > 0 {
		t.Errorf("%v allocations a sample", n)
	}
}

func BenchmarkFreeze(b *testing.B) {
	w := newBench(b, Limits{})
	w.install(1, view("hot", hot(80)))
	const devices = 10_000
	bytes := 0
	for b.Loop() {
		b.StopTimer()
		for id := range int64(devices) {
			w.apply(id+1, model.Micros(w.offset), readings("temp", float64(w.offset%2*100)))
		}
		w.edges = nil
		b.StartTimer()
		bytes = 0
		for _, p := range w.e.Freeze() {
			bytes += len(p.Data)
		}
	}
	b.ReportMetric(float64(bytes)/devices, "bytes/device")
}

// BenchmarkMemory reports what a device with rules costs while no rule has fired for it, and what a key that has
// fired adds.
func BenchmarkMemory(b *testing.B) {
	const devices = 10_000
	for name, value := range map[string]float64{"idle device": 20, "device with ten keys": 200} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				w := newBench(b, Limits{})
				w.install(1, tenRules(false)...)
				before := heapBytes()
				for id := range int64(devices) {
					in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Device: Device{ID: id, Token: fmt.Sprintf("device-%06d", id)}, Readings: readings("temp", value)}
					w.e.Apply(in, func(model.Edge) {})
				}
				b.ReportMetric(float64(heapBytes()-before)/devices, "bytes/device")
				runtime.KeepAlive(w)
			}
		})
	}
}

func heapBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkCompile(b *testing.B) {
	c := newTestCompiler(b, Limits{})
	for name, text := range map[string]string{"comparison": hot(80), "expression": celThreshold(`"a" in m && "b" in m && m.a > m.b`)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				def, _ := Decode([]byte(text))
				if _, _, err := c.Compile(def, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestKeysKeepTheirSize(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ size, most uintptr }{
		"a key": {unsafe.Sizeof(key{}), 40}, "what it has besides": {unsafe.Sizeof(extra{}), 48}, "a device": {unsafe.Sizeof(device{}), 152},
		"its gaps": {unsafe.Sizeof(window.Gaps{}), 32},
	} {
		if c.size > c.most {
			t.Errorf("%s takes %d bytes, %d at most", what, c.size, c.most)
		}
	}
}

// TestDevicesAreFoundByTheirIds compares the table with a map, ids that are far apart included.
func TestDevicesAreFoundByTheirIds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table, all := devices{regions: map[int64]*region{}}, map[int64]*device{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			id := rapid.Int64Range(0, 100).Draw(t, "id")
			if rapid.IntRange(0, 9).Draw(t, "far") == 0 {
				id = rapid.Int64().Draw(t, "far id")
			}
			switch d := all[id]; {
			case table.get(id) != d:
				t.Fatalf("device %d is %v, not %v", id, table.get(id), d)
			case d == nil:
				all[id] = &device{id: id}
				table.put(all[id])
			default:
				delete(all, id)
				table.remove(id)
			}
			if table.n != len(all) {
				t.Fatalf("%d devices, %d expected", table.n, len(all))
			}
		}
		for id := range all {
			table.remove(id)
		}
		if len(table.regions) != 0 {
			t.Fatalf("%d regions without devices", len(table.regions))
		}
	})
}

// TestAKeyThatRetainsNothingHasNoBuffer judges samples at once, over several keys in turn.
func TestAKeyThatRetainsNothingHasNoBuffer(t *testing.T) {
	w := newBench(t, Limits{})
	w.install(1, view("r", `{"name":"n","type":"deltaRate","lateness":"0s","metric":"temp","op":"gt","threshold":80}`))
	in := &Input{Position: w.place(0), Profile: plant.ProfileKey, Readings: readings("temp", 20.0)}
	apply := func() {
		for id := range int64(3) {
			in.Offset++
			in.Occurred++
			in.Device = Device{ID: id + 1, Token: "device"}
			w.e.Apply(in, w.emit)
		}
	}
	apply()
	if n := testing.AllocsPerRun(100, apply); n > 0 {
		t.Errorf("%v allocations for three samples", n)
	}
	for id := range int64(3) {
		if l := w.e.devices.get(id + 1).keys[0].extra.own.(*window.Line); l.Lend(make([]window.Sample, 0, 1)) != nil {
			t.Error("a key that retains nothing holds memory for a sample")
		}
	}
}

// BenchmarkMillionKeys is one reading against one rule, with its look-ups, latch and counters, over a million keys at random.
func BenchmarkMillionKeys(b *testing.B) {
	const keys = 1_000_000
	for _, c := range []struct{ name, rule string }{
		{"threshold", hot(80)},
		{"expression", celThreshold(`"temp" in m && m["temp"] > 80.0`)},
		{"duration", `{"name":"n","type":"duration","hold":"1h","when":{"metric":"temp","op":"gt","threshold":80}}`},
		{"tumbling", `{"name":"n","type":"aggregate","windowMode":"tumbling","window":"1h","agg":"avg","metric":"temp","op":"gt","threshold":80}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := newBench(b, Limits{Settings: Settings{MaxKeys: 2 * keys}})
			w.install(1, view("r", c.rule))
			in := &Input{Position: w.place(0), Profile: plant.ProfileKey}
			apply := func(id int64, at model.Micros, v float64) {
				in.Offset++
				in.Device, in.Occurred = Device{ID: id, Token: "device"}, at
				in.Readings = []model.Reading{{Metric: "temp", Value: v}}
				in.Listening = Listening(at) * 1000
				w.e.Apply(in, func(model.Edge) {})
			}
			before := heapBytes()
			for id := range int64(keys) {
				apply(id, 1, 20)
			}
			clocks := heapBytes() - before
			for id := range int64(keys) {
				apply(id, 2, 81)
			}
			all := heapBytes() - before
			n := uint64(1)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n = n*6364136223846793005 + 1442695040888963407
				in.Offset++
				in.Device.ID, in.Occurred = int64(n>>33)%keys, 3
				w.e.Apply(in, func(model.Edge) {})
			}
			b.ReportMetric(float64(clocks)/keys, "bytes/device-first")
			b.ReportMetric(float64(all)/keys, "bytes/device-and-key")
		})
	}
}
