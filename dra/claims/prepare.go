// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/tandem-k8s/tandem/coordination/intent"
)

// prepare prepares the claims of a pod, under the lock. With an error those are returned that are prepared
// all the same.
func (p *Preparer) prepare(
	ctx context.Context, state State, claims []*resourceapi.ResourceClaim, pods []*corev1.Pod,
) ([]Claim, error) {
	release, err := lock(p.Dir)
	if err != nil {
		return nil, err
	}
	defer release()
	known, err := p.known()
	if err != nil {
		return nil, err
	}
	kept, due := split(known, claims)
	if len(due) > 0 && state.Unread != nil {
		return p.complete(kept), fmt.Errorf("prepare claims: %w", state.Unread)
	}
	others := slices.DeleteFunc(slices.Clone(known), func(c Claim) bool {
		return slices.ContainsFunc(due, func(claim *resourceapi.ResourceClaim) bool { return claim.UID == c.UID })
	})
	groups, err := group(claims, pods)
	if err != nil {
		return p.complete(kept), err
	}
	d := newDecision(state, others, groups)
	fresh, err := p.decide(d, due, others, pods)
	if err != nil {
		return p.complete(kept), err
	}
	all := slices.Concat(others, fresh)
	environments, written, err := p.compose(d, all, kept, fresh)
	if err == nil {
		err = conflict(pods, claims, all, environments)
	}
	if err != nil {
		return p.complete(kept), err
	}
	if err := p.carryOut(all, fresh, written, environments); err != nil {
		_, undo := p.forget(all, fresh)
		return p.complete(kept), errors.Join(err, undo)
	}
	given := slices.Concat(kept, fresh)
	if !redeemed(given...) {
		return given, nil
	}
	if err := p.rebind(ctx, all); err != nil {
		_, undo := p.forget(all, fresh)
		return slices.DeleteFunc(kept, func(c Claim) bool { return redeemed(c) }), errors.Join(err, undo)
	}
	return given, nil
}

// split tells the claims that are prepared from those that have to be.
func split(
	known []Claim, claims []*resourceapi.ResourceClaim,
) (kept []Claim, due []*resourceapi.ResourceClaim) {
	for _, claim := range claims {
		switch was := find(known, claim.UID); {
		case len(results(claim)) == 0: // nothing of ours
		case was.isOf(claim):
			kept = append(kept, was)
		default:
			due = append(due, claim)
		}
	}
	return kept, due
}

// decide says what is handed out for claims, and refuses what must not be.
func (p *Preparer) decide(
	d *decision, due []*resourceapi.ResourceClaim, others []Claim, pods []*corev1.Pod,
) ([]Claim, error) {
	var fresh []Claim
	for _, claim := range due {
		c, err := d.decide(claim)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, c)
	}
	for i, claim := range due {
		otherwise, err := p.demands(claim, pods)
		if err != nil {
			return nil, err
		}
		if otherwise == "" {
			continue
		}
		for _, first := range fresh[i].firsts() {
			devices := inGroup(slices.Concat(others, fresh), first.Group)
			if err := d.misaligned(fresh[i], devices, otherwise); err != nil {
				return nil, err
			}
		}
	}
	return fresh, nil
}

// demands says what would have to be otherwise for a claim to start without all its pairs being on one switch
// each; "" where it may. Of several pods that share the claim each can require it.
func (p *Preparer) demands(
	claim *resourceapi.ResourceClaim, pods []*corev1.Pod,
) (otherwise string, err error) {
	required, err := demandOf(claim)
	if err != nil {
		return "", err
	}
	alignment, _ := p.Policy.AlignmentOf(claim.Namespace, nil)
	for i, pod := range reservedFor(claim, pods) {
		asked, remark := p.Policy.AlignmentOf(claim.Namespace, pod.Annotations)
		if remark != "" {
			p.Log.Warn("pod", "pod", pod.Namespace+"/"+pod.Name, "remark", remark)
		}
		if i == 0 || asked == intent.Required {
			alignment = asked
		}
	}
	switch {
	case required:
		return fmt.Sprintf("without alignment: %s in the parameters of the claim or its class the pod would start",
			intent.Required), nil
	case alignment != intent.Required:
		return "", nil
	case cmp.Or(p.Policy.Alignment, intent.Preferred) == intent.Required:
		return fmt.Sprintf("the driver's flag --alignment=%s asks that of every pod", intent.Required), nil
	default:
		return intent.Relaxation, nil
	}
}

// compose looks up what the containers of claims get, by group. It returns the claims whose files can be
// written: all but those that are prepared, have their files, and cannot be looked up any more. It is an
// error where a file of those is missing: the kubelet does not ask again for a claim that it was told is
// prepared.
func (p *Preparer) compose(
	d *decision, all, kept, fresh []Claim,
) (environments map[string]*environment, written []Claim, err error) {
	environments = map[string]*environment{}
	for _, c := range fresh {
		if err := p.composeAll(d, all, c, environments); err != nil {
			return nil, nil, fmt.Errorf("prepare %s: %w", c, err)
		}
		c.names(environments)
	}
	written = slices.Clone(fresh)
	for _, c := range kept {
		err := p.composeAll(d, all, c, environments)
		if err == nil {
			written = append(written, c)
		} else if err = p.unrestored(c, err); err != nil {
			return nil, nil, err
		}
	}
	return environments, written, nil
}

// complete are those of prepared claims of which no file is missing.
func (p *Preparer) complete(kept []Claim) []Claim {
	return slices.DeleteFunc(slices.Clone(kept), func(c Claim) bool { return p.missing(c) != "" })
}

// carryOut makes what was decided so: the checkpoint first, for the files of claims that it does not have are
// removed.
func (p *Preparer) carryOut(
	all, fresh, written []Claim, environments map[string]*environment,
) error {
	if len(fresh) > 0 {
		if err := p.save(all); err != nil {
			return err
		}
	}
	for _, c := range written {
		if err := p.put(c, environments); err != nil {
			return err
		}
	}
	return nil
}

// composeAll adds the environments of a claim's groups that are not there yet.
func (p *Preparer) composeAll(d *decision, all []Claim, c Claim, environments map[string]*environment) error {
	for _, first := range c.firsts() {
		if environments[first.Group] != nil {
			continue
		}
		e, err := p.environment(d, first.Group, inGroup(all, first.Group))
		if err != nil {
			return err
		}
		environments[first.Group] = e
	}
	return nil
}

// put writes the files of a claim, those first that its CDI spec refers to.
func (p *Preparer) put(c Claim, environments map[string]*environment) error {
	for _, first := range c.firsts() {
		if err := p.write(environments[first.Group]); err != nil {
			return err
		}
	}
	return p.writeSpec(c, environments)
}
