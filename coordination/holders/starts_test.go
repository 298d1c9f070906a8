// SPDX-License-Identifier: Apache-2.0

package holders_test

import "testing"

// Parts of sources: two pods of the first kubelet, and what the second one has lost.
const (
	first      = "life first; recorded u1/c g1, u2/c g2"
	second     = "life second; recorded u1/c g1, u2/c g2"
	noRecords  = "life second; recorded"
	someBoth   = "; some pods u1=a, u2=b"
	someSecond = "; some pods u2=b"
	both, left = "u1 a/c g1, u2 b/c g2", "u2 b/c g2"
)

// A kubelet that has started adds its pods one by one, and may have lost its records. A pod that it has not
// listed yet has not ended, and a running pod keeps what the kubelet before had recorded.
func TestKubeletStarts(t *testing.T) {
	t.Parallel()
	before := search{first + someBoth, both}
	testSearches(t, map[string][]search{
		"a pod ends":          {before, {first + someSecond, left}},
		"not listed yet":      {before, {second + someSecond, both}},
		"records lost":        {before, {noRecords + someBoth, both}},
		"lost, no list":       {before, {noRecords, both}},
		"lost, one has ended": {before, {noRecords + "; all pods u2=b", left}},
		"taken back":          {before, {"life first; recorded" + someBoth, ""}},
		"the List of the kubelet proves nothing yet": {
			{"life first; recorded u1/c g1; list a/c g1", "u1 a/c g1"},
			{"life second; recorded u1/c g1; list", "u1 a/c g1"},
		},

		// Without a request source List shows the end of a pod that it has shown before; a first List shows none.
		"lost, ended by List": {
			before,
			{noRecords + "; list b/c", both}, {noRecords + "; list a/c, b/c", both}, {noRecords + "; list b/c", left},
		},
		// A lost container is no holder until its pod is listed; a whole list without the pod ends it.
		"lost, listed later": {before, {noRecords + someSecond, left}, {noRecords + someBoth, both}},
		"lost, listed later, after no answer": {
			before, {noRecords + someSecond, left}, {noRecords, left}, {noRecords + someBoth, both},
		},
		"lost, ended by a whole list": {
			before, {noRecords + "; all pods u2=b", left}, {noRecords + someBoth, left},
		},
		"lost, later ended by a whole list": {
			before,
			{noRecords + someSecond, left}, {noRecords + "; all pods u2=b", left}, {noRecords + someBoth, left},
		},

		// Other containers of the pod run with their devices; an init container has ended.
		"lost, and a container starts again": {
			{
				"life first; recorded u1/c g1, u1/init g2, u1/other g3; list a/c g1, a/other g3; all pods u1=a",
				"u1 a/c g1, u1 a/init g2, u1 a/other g3",
			},
			{"life second; recorded u1/c g4; all pods u1=a", "u1 a/c g4, u1 a/other g3"},
		},
		"lost, then no checkpoint: an offer frees recorded containers alone": {
			{first + "; some pods u1=a", "u1 a/c g1, u2 ?/c g2"},
			{"life second; recorded u2/c g2; some pods u1=a", "u1 a/c g1, u2 ?/c g2"},
			{"life second; list a/c; asks g: g1 g2", "u1 a/c g1"},
		},
	})
}

// A kubelet has started without its records. Of a container that no search has seen in the checkpoint, but by
// its Allocates alone, the list of pods says, once it has the pod, whether the container runs. Until then, a
// search without an answer, or of an unknown kubelet, forgets nothing.
func TestLostContainerOfAllocates(t *testing.T) {
	t.Parallel()
	const (
		olderRuns = "; some pods u1=a started"
		bothRun   = "; some pods u1=a started, u2=b started"
		none      = "; some pods u1=a, u2=b" // has started
		unknown   = "recorded"               // the kubelet
		third     = "life third; recorded"
		older     = "u1 a/c g1"
	)
	before := search{
		"life first; recorded u1/c g1" + someBoth + "; allocated u2 b/c g2", both + " open; left g2",
	}
	testSearches(t, map[string][]search{
		"started":     {before, {noRecords + "; all pods u1=a started, u2=b started", both}},
		"not started": {before, {noRecords + "; all pods u1=a, u2=b", older}},
		"ended":       {before, {noRecords + "; all pods u3=d started", ""}},
		"no list":     {before, {noRecords, both}},
		"no list, allocated by the same kubelet": {
			{"life first; recorded u1/c g1" + someBoth, older},
			{noRecords + someBoth + "; allocated u2 b/c g2", both + " open; left g2"},
			{"life second; rewritten", older},
		},
		"no list, allocated by an unknown kubelet": {
			{"recorded u1/c g1" + someBoth + "; allocated u2 b/c g2", both + " open; left g2"}, {noRecords, older},
		},

		"listed at once":            {before, {noRecords + bothRun, both}},
		"listed after no answer":    {before, {noRecords, both}, {noRecords + bothRun, both}},
		"listed later":              {before, {noRecords + olderRuns, older}, {noRecords + bothRun, both}},
		"listed later, not started": {before, {noRecords + olderRuns, older}, {noRecords + none, older}},

		"a list, and no answer": {
			before, {noRecords + olderRuns, older}, {noRecords, older}, {noRecords + bothRun, both},
		},
		"no answer, a list, no answer": {
			before, {noRecords, both}, {noRecords + olderRuns, older}, {noRecords, older}, {noRecords + bothRun, both},
		},
		"an unknown kubelet": {
			before, {noRecords + olderRuns, older}, {unknown + olderRuns, older}, {noRecords + bothRun, both},
		},
		"an unknown kubelet first": {before, {unknown + olderRuns, older}, {noRecords + bothRun, both}},
		"a third kubelet": {
			before, {noRecords + olderRuns, older}, {third + olderRuns, older}, {third + bothRun, both},
		},
	})
}

// A pod that List or an offer has proved to have ended is gone without them too: until the kubelet writes its
// checkpoint, another kubelet starts, or List shows the pod. A request source proves less: a static pod can
// come back, and has its devices again if the kubelet has not freed them.
func TestFreedPods(t *testing.T) {
	t.Parallel()
	const (
		listBoth    = first + "; list a/c g1, b/c g2"
		listSecond  = first + "; list b/c g2"
		secondAlone = "; all pods u2=b"
	)
	listed, freed := search{listBoth, both}, search{listSecond, left}
	testSearches(t, map[string][]search{
		"by List":              {listed, freed, {first, left}, {first, left}},
		"by List and a source": {listed, {listSecond + secondAlone, left}, {first, left}, {first, left}},
		"by a source":          {listed, {first + secondAlone, left}, {first, both}},
		"by a source first":    {listed, {listBoth + secondAlone, "? a/c g1 open, u2 b/c g2"}, {first, both}},
		"by an offer": {
			listed, {second + "; asks g: g1", left}, {second, left}, {second + "; list a/c g1", both},
		},
		"by Get":              {listed, {listSecond + "; single a", left}, {first, both}},
		"until List shows it": {listed, freed, {first, left}, listed},
		"a checkpoint":        {listed, freed, {first, left}, {"life first; rewritten u1/c g1, u2/c g2", both}},
		"another kubelet":     {listed, freed, {first, left}, {second, both}},
		"an unknown kubelet":  {listed, freed, {first, left}, {"recorded u1/c g1, u2/c g2", both}},

		// A pod that the checkpoint has for the first time while List fails has come since the last List.
		"a pod of the checkpoint, admitted while List fails": {
			{"life first; recorded; list b/c g2", "? b/c g2 open"},
			{"life first; recorded u1/c g1", "u1 ?/c g1"},
			{"life first; recorded u1/c g1; list b/c g2", "? b/c g2 open"},
		},
	})
}
