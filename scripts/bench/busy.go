package main

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// What a machine that is called idle gives to others, and loses to its host, as a part
// of all its processors.
const (
	mostOthers = 0.10
	mostStolen = 0.02
)

// others is what a machine's processors did for neither the tool nor this program.
type others struct {
	used   float64 // by other processes, of all processors: 0 to 1
	stolen float64 // by the host
}

func (o others) busy() bool { return o.used > mostOthers || o.stolen > mostStolen }

func (o others) most(with others) others {
	return others{max(o.used, with.used), max(o.stolen, with.stolen)}
}

func (o others) String() string {
	return fmt.Sprintf("others used %.0f %% of the processors, %.0f %% were stolen", 100*o.used, 100*o.stolen)
}

// ticks is what the processors have done so far, and when that was read.
type ticks struct {
	at           time.Time
	used, stolen time.Duration
	own          time.Duration // of used, by this program
}

// readTicks reads them; where the kernel does not tell, all are zero. Interrupts are
// left out: those of a tool's network are told apart from others' by nobody.
func readTicks() ticks {
	t := ticks{at: time.Now()}
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t
	}
	const tick = time.Second / 100 // USER_HZ
	var user, nice, system, idle, wait, irq, soft, steal int64
	if _, err := fmt.Fscanf(bytes.NewReader(data), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal); err != nil {
		return t
	}
	t.used, t.stolen = time.Duration(user+nice+system)*tick, time.Duration(steal)*tick
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) == nil {
		t.own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	return t
}

// leastSeen is how long a run has to be for ticks of 10 ms to say anything of it.
const leastSeen = 500 * time.Millisecond

// since is what others did since then, apart from a child that used so much; nothing of
// a run that is too short to tell.
func (t ticks) since(child time.Duration) others {
	now := readTicks()
	if now.at.Sub(t.at) < leastSeen {
		return others{}
	}
	all := now.at.Sub(t.at).Seconds() * float64(runtime.NumCPU())
	used := now.used - t.used - (now.own - t.own) - child
	return others{used: max(0, used.Seconds()/all), stolen: max(0, (now.stolen-t.stolen).Seconds()/all)}
}
