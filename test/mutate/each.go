// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"sync"
)

// each calls do for all items, at most jobs at a time, until an error, and returns the errors.
func each[T any](jobs int, items []T, do func(T) error) error {
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	free := make(chan struct{}, max(jobs, 1))
	for _, item := range items {
		free <- struct{}{}
		mu.Lock()
		stop := failed != nil
		mu.Unlock()
		if stop {
			break
		}
		all.Go(func() {
			err := do(item)
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
			<-free
		})
	}
	all.Wait()
	return failed
}
