// Package faults names the places at which the program may be ended on purpose: between the steps whose order keeps its
// promises. In the program that is shipped a point is nothing at all. A build with the tag faults looks at each of them into a
// plan, and kills itself where the plan says; internal/test/crash makes such plans and looks at what is left. Some points lie
// behind a wait of hours: that build also shortens a wait, and keeps a file that it removes, where the environment says so; the
// shipped program never does.
package faults
