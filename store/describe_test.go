package store

import (
	"fmt"
	"strings"
	"testing"
)

func TestMistakesInADescriptionAreFoundAtOnce(t *testing.T) {
	for want, make := range map[string]func(){
		"is no struct":        func() { NewTable[int](Desc[int]{Kind: "k", Name: "n"}) },
		"embeds no store.Row": func() { type e struct{ A string }; NewTable[e](Desc[e]{Kind: "k", Name: "n"}) },
		"needs a kind":        func() { type e struct{ Row }; NewTable[e](Desc[e]{Name: "n"}) },
		"no column": func() {
			table[struct {
				Row
				A string `store:",clear"`
			}]()
		},
		"unknown option": func() {
			table[struct {
				Row
				A string `store:"a,sparkling"`
			}]()
		},
		"described twice": func() {
			table[struct {
				Row
				A, B string `store:"a,clear"`
			}]()
		},
		"both clear and": func() {
			table[struct {
				Row
				A string `store:"a,clear,required"`
			}]()
		},
		"emptyclears without": func() {
			table[struct {
				Row
				A string `store:"a,required,emptyclears"`
			}]()
		},
		"a token is a string": func() {
			table[struct {
				Row
				A *string `store:"a,token"`
			}]()
		},
		"a reference is an": func() {
			table[struct {
				Row
				A string `store:"a,required,ref=t"`
			}]()
		},
		"is a pointer": func() {
			table[struct {
				Row
				A int64 `store:"a,clear,ref=t"`
			}]()
		},
		"a document is a": func() {
			table[struct {
				Row
				A int64 `store:"a,clear,json"`
			}]()
		},
		"a list is a []string": func() {
			table[struct {
				Row
				A string `store:"a,clear,list"`
			}]()
		},
		"a list is no pointer": func() {
			table[struct {
				Row
				A *[]string `store:"a,clear"`
			}]()
		},
		"no patch can hold": func() {
			table[struct {
				Row
				A []byte `store:"a,clear"`
			}]()
		},
		"has no column type": func() {
			table[struct {
				Row
				A map[string]int `store:"a"`
			}]()
		},
		"invalid syntax": func() {
			table[struct {
				Row
				A string `store:"a,clear,max=many"`
			}]()
		},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, want) {
					t.Errorf("got %s", p)
				}
			}()
			make()
		})
	}
}

func table[T any]() { NewTable[T](Desc[T]{Kind: "k", Name: "n"}) }
