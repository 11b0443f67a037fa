// Package powercut plays a machine whose power fails. A program runs on it with a folder whose disk takes nothing for good
// until it is told to: every fsync and fdatasync of the program stops in the kernel (a seccomp filter hands it over to the
// test), the pages of that moment are put down as what the disk now holds, and the program goes on without the flush having
// happened. At a cut the program is killed, and each file becomes a random mixture of what the disk held after the last sync
// and of what was written since: by page or by sector, the length of either, names that were not synced there or not. The
// program is the one that is shipped: nothing in it knows of this. It works on Linux on amd64.
package powercut
