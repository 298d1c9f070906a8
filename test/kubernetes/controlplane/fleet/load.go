// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tandem-k8s/tandem/test/server"
)

// Mix has the requests of pods, all equally frequent.
var Mix = []Wish{
	{GPUs: 1, VFs: 1}, {GPUs: 2, VFs: 2}, {GPUs: 4, VFs: 4}, {GPUs: 8, VFs: 8}, {GPUs: 1}, {GPUs: 2}, {VFs: 1},
}

// Load is a sequence of pods, one by one or in bursts.
type Load struct {
	First      int // number of the first pod
	Pods       int
	Burst      int           // number of pods per arrival
	Every      time.Duration // mean interval between pods
	Life       time.Duration // on average
	Schedulers []string      // used in turn
	Seed       uint64
}

// Fill returns the lifetime of pods with which a load uses a share of the GPUs of some nodes.
func (l Load) Fill(nodes int, part float64) time.Duration {
	gpus := 0
	for _, w := range Mix {
		gpus += w.GPUs
	}
	each := float64(gpus) / float64(len(Mix))
	return time.Duration(part * float64(nodes*server.GPUs) / each * float64(l.Every))
}

// Warm returns the number of pods after which as many pods end as arrive: until the longest of the first ones
// ends.
func (l Load) Warm() int { return int(math.Ceil(1.5 * float64(l.Life) / float64(l.Every))) }

// Run creates the pods, after a call of told for each. It returns when all are created.
func (l Load) Run(ctx context.Context, f *Fleet, told func(name string, w Wish)) error {
	random := rand.New(rand.NewPCG(l.Seed, 0))
	var group errgroup.Group
	group.SetLimit(writers)
	next := time.NewTimer(0)
	defer next.Stop()
	for i := l.First; i < l.First+l.Pods; i++ {
		if (i-l.First)%l.Burst == 0 {
			select {
			case <-next.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			next.Reset(time.Duration(random.ExpFloat64() * float64(l.Every) * float64(l.Burst)))
		}
		name, wish := fmt.Sprintf("pod-%05d", i), l.wish(random, i)
		told(name, wish)
		group.Go(func() error { return f.Create(ctx, name, wish) })
	}
	return group.Wait()
}

func (l Load) wish(random *rand.Rand, i int) Wish {
	w := Mix[random.IntN(len(Mix))]
	w.Life = time.Duration((0.5 + random.Float64()) * float64(l.Life))
	w.Scheduler = l.Schedulers[i%len(l.Schedulers)]
	return w
}
