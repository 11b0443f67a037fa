package rules

import (
	"strings"
	"testing"
)

// A rule that would judge nothing is refused, with what is wrong and where.
func TestConstantsThatCanNeverBeEvaluatedAreRefused(t *testing.T) {
	t.Parallel()
	c := newTestCompiler(t, Limits{Actions: performed})
	for cel, why := range map[string]string{
		`occurred.getHours("Europe/Berln") >= 22`:                `"Europe/Berln" is no time zone (did you mean Europe/Berlin?)`,
		`occurred.getHours("Local") >= 22`:                       `"Local" is no time zone`,
		`occurred.getHours("posix/Europe/Berlin") >= 22`:         `is no time zone`,
		`occurred.getHours("+24:00") >= 22`:                      `is no offset of a time zone`,
		`1 % 0 == 1`:                                             `always fails`,
		`occurred.getMinutes() % 0 == 1`:                         `divides by zero`,
		`occurred.getMinutes() / 0 == 1`:                         `divides by zero`,
		`9223372036854775807 + 1 > 0`:                            `always fails`,
		`m["t"] > 1.0 / 0.0`:                                     `1.0 / 0.0 is no finite number`,
		`m["t"] > 1.0 && occurred.getDayOfWeek() == 7`:           `occurred.getDayOfWeek() == 7 never holds: getDayOfWeek gives 0 to 6`,
		`occurred.getMonth() == 12`:                              `never holds: getMonth gives 0 to 11`,
		`24 <= occurred.getHours("Europe/Berlin")`:               `never holds: getHours gives 0 to 23`,
		`occurred.getHours() >= 22 || [1 % 0].exists(x, x == 1)`: `always fails`,
	} {
		errs, _ := c.Validate([]Candidate{{Token: "r", Definition: celThreshold(cel)}})
		if len(errs) != 1 || !strings.Contains(errs[0].Message, why) || !strings.HasPrefix(errs[0].Message, "when: line 1, column ") {
			t.Errorf("%s: %+v, want %q with its place", cel, errs, why)
		}
		if _, _, faults := c.Inspect(celThreshold(cel), Options{}); len(faults) != 1 {
			t.Errorf("%s: Inspect finds %v", cel, faults)
		}
	}
	for _, cel := range []string{
		`occurred.getHours("Europe/Berlin") >= 22 || occurred.getHours("+02:00") < 6`, `occurred.getDayOfWeek() == 6`, `occurred.getMonth() != 12`,
		`m["t"] / 2.0 > 1.0 + 1.0`, `occurred.getMinutes() % 15 == 0`, `occurred > timestamp("2026-01-01T00:00:00Z")`, `cel.bind(x, m["t"], x > 2.0 * 3.0)`,
	} {
		if errs, _ := c.Validate([]Candidate{{Token: "r", Definition: celThreshold(cel)}}); len(errs) != 0 {
			t.Errorf("%s: %+v", cel, errs)
		}
	}
	guarded := func(guard string) string {
		return `{"name":"n","type":"threshold","severity":"major","when":{"metric":"t","op":"gt","threshold":1},"actions":[{"type":"raiseAlarm","raiseAlarm":{},"guard":` + guard + `}]}`
	}
	errs, _ := c.Validate([]Candidate{{Token: "r", Definition: guarded(`"value > 1.0 / 0.0"`)}})
	if len(errs) != 1 || !strings.HasPrefix(errs[0].Message, "actions[0].guard: ") {
		t.Errorf("a guard: %+v", errs)
	}
}

// What a zone means depends neither on the variables nor on the files of the machine.
func TestAZoneMeansTheSameOnEveryMachine(t *testing.T) {
	t.Setenv("TZ", "America/New_York")
	t.Setenv("ZONEINFO", t.TempDir())
	c := newTestCompiler(t, Limits{})
	def, err := c.Decode([]byte(celThreshold(`occurred.getHours("Europe/Berlin") == 14`)))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Compile(def, Options{}); err != nil {
		t.Fatal(err)
	}
	ast, _, err := c.envs.leaf.check(`timestamp("2026-07-01T12:00:00Z").getHours("Europe/Berlin") == 14 && timestamp("2026-07-01T12:00:00Z").getDayOfWeek("Pacific/Auckland") == 4
		&& timestamp("2026-01-01T00:30:00Z").getFullYear("America/New_York") == 2025 && timestamp("2026-01-01T00:30:00Z").getMonth("America/New_York") == 11
		&& timestamp("2026-01-01T00:30:00Z").getDate("+01:00") == 1 && timestamp("2026-01-01T00:30:00Z").getDayOfYear("-01:00") == 364`, 1000)
	if err != nil {
		t.Fatal(err)
	}
	program, err := c.envs.leaf.env.Program(ast)
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err := program.Eval(map[string]any{}); err != nil || v.Value() != true {
		t.Errorf("%v, %v", v, err)
	}
}
