package admission

import (
	"context"
	"fmt"
	"time"
)

// How much a ledger holds. The largest nodes known have 63 GPU partitions and some hundred VFs, but eight
// GPUs that 2,000 containers share each are 16,000 devices. So many fit, all held, into a checkpoint.
const (
	MaxDevices   = 1 << 14 // of one resource
	MaxResources = 64
)

// room says why a ledger does not take so many more devices of a resource; nil where it does.
func (l *ledger) room(name string, more int) error {
	known := max(len(l.holders), len(l.resources))
	if l.resources[name] == nil && l.holders[name] == nil && known >= MaxResources {
		return fmt.Errorf("there are %d resources already", known)
	}
	if len(l.holders[name])+more > MaxDevices {
		return fmt.Errorf("%d devices of %s are held already", len(l.holders[name]), name)
	}
	return nil
}

// announceTimeout is how long a question waits for what the plugin announces about its devices: it tells the
// kubelet of them at the same moment, and the kubelet can be faster.
const announceTimeout = 30 * time.Millisecond

// answerable waits until a question can be answered, or says why it cannot, before the kubelet is bothered
// with it. Resources never go away, so that what is answerable stays so.
func (c *Coordinator) answerable(ctx context.Context, q question) error {
	announced, err := c.lacking(q)
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	for err != nil {
		select {
		case <-announced:
			announced, err = c.lacking(q)
		case <-ctx.Done():
			return err
		}
	}
	return nil
}

// lacking says what has not been announced that a question is about, and then returns a channel that the next
// announcement closes.
func (c *Coordinator) lacking(q question) (announced <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = c.current().ledger.lacking(q); err != nil && c.announced == nil {
		c.announced = make(chan struct{})
	}
	return c.announced, err
}

// lacking says what has not been announced that a question is about.
func (l *ledger) lacking(q question) error {
	r := l.resources[q.resource]
	switch {
	case r == nil:
		return fmt.Errorf("choose %s: no plugin has announced it", q.resource)
	case len(q.available) > len(r.devices) || len(q.mustInclude) > len(r.devices):
		return fmt.Errorf("choose among %d devices of %s: only %d were announced",
			len(q.available), q.resource, len(r.devices))
	}
	return nil
}
