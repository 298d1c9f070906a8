package coordination

import (
	"errors"
	"log/slog"
	"time"

	"github.com/tandem-k8s/tandem/coordination/survive"
)

// readTimeout bounds the reading of a file on the way to an answer. It takes a tenth of a millisecond; a disk that hangs takes for ever.
const readTimeout = 25 * time.Millisecond

var errHangs = errors.New("reading does not end; is the disk all right?")

// hurried makes a function that reads as read does, but gives up after a time. One reading is in progress at most: as
// long as one hangs the others wait for it, so that a disk that hangs keeps one goroutine.
func hurried[T any](log *slog.Logger, limit time.Duration, read func() (T, error)) func() (T, error) {
	type result struct {
		value T
		err   error
	}
	turn := make(chan struct{}, 1)
	return func() (none T, err error) {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case turn <- struct{}{}:
		case <-timer.C:
			return none, errHangs
		}
		results := make(chan result, 1)
		go func() {
			var r result
			r.err = survive.Do(log, func() (err error) {
				r.value, err = read()
				return err
			})
			<-turn
			results <- r
		}()
		select {
		case r := <-results:
			return r.value, r.err
		case <-timer.C:
		}
		select {
		case r := <-results: // both were there: the machine is busy, the disk is all right
			return r.value, r.err
		default:
			return none, errHangs
		}
	}
}
