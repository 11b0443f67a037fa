package rules

import (
	"fmt"
	"runtime"
	"testing"

	"weir/model"
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
