// SPDX-License-Identifier: Apache-2.0

package fleet

import "time"

// task is something to do at a time.
type task struct {
	at time.Time
	do func()
}

// queue is a heap with the next task first (container/heap).
type queue []task

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(task)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	*q = (*q)[:last]
	return t
}

// wait returns the time until the next task.
func (q queue) wait(now time.Time) time.Duration {
	if len(q) == 0 {
		return time.Hour
	}
	return q[0].at.Sub(now)
}
