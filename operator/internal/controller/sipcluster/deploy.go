package sipcluster

import (
	"context"
	"errors"
	"slices"

	airship "github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/airship/v1"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/api/fault"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/inventory"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/plan"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/render"
	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/sip/services"
)

// deploy makes the services what they shall be.
func (p *pass) deploy(ctx context.Context) error {
	if err := p.records.load(ctx, p); err != nil {
		return because(airship.ReasonInfraServiceFailure, err)
	}
	missing, err := p.render(ctx), p.apply(ctx)
	if errors.Is(err, fault.ErrOutdated) {
		return err // whatever else there is
	}
	return because(airship.ReasonInfraServiceFailure, errors.Join(missing, err))
}

// apply makes the cluster what was rendered: what is wanted is recorded before it is made,
// and what is no longer wanted goes when what takes its place is ready.
func (p *pass) apply(ctx context.Context) error {
	planned, err := p.plan(ctx)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(planned.Steps, plan.Step.Writes) {
		if err := p.stillHeld(ctx); err != nil {
			return err
		}
	}
	for _, s := range planned.Steps {
		if s.Object != nil && s.Err == nil {
			p.records.inventory = p.records.inventory.Union(inventory.Entry{ID: s.ID, Driver: s.Driver})
		}
		if s.Action == plan.Gone || s.Action == plan.Forget {
			p.forget(s)
		}
	}
	p.anew(planned)
	if err := p.records.save(ctx, p); err != nil {
		return err
	}
	p.applied = true
	var errs []error
	for _, service := range p.rendered.Services {
		done, err := p.applyService(ctx, service, planned.Stage(service.Name))
		errs = append(errs, err)
		p.assess(service, done)
	}
	errs = append(errs, p.prune(ctx, planned), p.records.save(ctx, p))
	return errors.Join(errs...)
}

// anew notes of what is about to be made that it will have another UID than it had.
func (p *pass) anew(planned plan.Plan) {
	for _, service := range p.rendered.Services {
		steps := planned.Stage(service.Name)
		if service.Err != nil || slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Err != nil }) {
			continue // none of them is done
		}
		for _, s := range steps {
			if s.Action == plan.Create || s.AtOnce() {
				p.records.inventory = p.records.inventory.WithoutUID(s.Key)
			}
		}
	}
}

func (p *pass) plan(ctx context.Context) (plan.Plan, error) {
	in := plan.Input{
		Inventory: p.records.inventory, Live: plan.Live{}, Refused: p.records.refused,
		Held: map[inventory.Part]string{}, WithoutIt: "take the service out of the SIPCluster",
	}
	var objects []render.Object
	var ids []inventory.ID
	for _, s := range p.rendered.Services {
		part := inventory.Part(s.Name)
		if s.Err != nil {
			in.Held[part] = "its service cannot be rendered"
		}
		stage := render.Stage{Name: s.Name, Drivers: []inventory.Part{part}}
		for _, o := range s.Objects {
			object := render.Object{Unstructured: o, Driver: part, Apply: strategy(o.GetKind())}
			stage.Objects = append(stage.Objects, object)
			ids = append(ids, plan.IDOf(o))
		}
		objects = append(objects, stage.Objects...)
		in.Stages = append(in.Stages, stage)
	}
	if err := p.records.read(ctx, p, ids); err != nil {
		return plan.Plan{}, err
	}
	for key, o := range p.records.live {
		if o != nil {
			in.Live[key] = o
		}
	}
	var err error
	if in.DryRun, err = p.Cluster.DryRun(ctx, objects, in.Live); err != nil {
		return plan.Plan{}, err
	}
	return plan.Make(in), nil
}

// strategy replaces the data of what holds configuration whole: a key that somebody added
// would be read too.
func strategy(kind string) render.Strategy {
	if kind == "ConfigMap" || kind == "Secret" {
		return render.Replace
	}
	return render.Merge
}

// applyService does the steps of one service, and tells whether all are done: what is
// deleted to be made anew keeps the steps after it for a later pass. What fails stops the
// service, and no other.
func (p *pass) applyService(ctx context.Context, service services.Service, steps []plan.Step) (done bool, err error) {
	if service.Err != nil {
		return false, nil //nolint:nilerr // told already
	}
	for _, s := range steps {
		if s.Err != nil {
			return false, conflicted(s.Err)
		}
	}
	for _, s := range steps {
		live := p.records.live[s.Key]
		if s.Writes() {
			made, err := p.Cluster.Apply(ctx, s, live)
			if err != nil {
				return false, err
			}
			if made == nil { // deleted, to be made anew
				p.again = true
				return false, nil
			}
			live = made
			p.records.live[s.Key] = made
		}
		if live != nil && s.Object != nil {
			release := ""
			if s.Kind == "Deployment" {
				release = service.Image
			}
			made := inventory.Entry{ID: s.ID, Driver: s.Driver, UID: string(live.GetUID()), Release: release}
			p.records.inventory = p.records.inventory.With(made)
		}
	}
	return true, nil
}

// prune removes what is no longer wanted: all of a service that is gone, and of the others
// what they no longer have, once they are ready without it.
func (p *pass) prune(ctx context.Context, planned plan.Plan) error {
	var steps []plan.Step
	for _, s := range planned.Removals() {
		if i := p.state(string(s.Driver)); s.Action == plan.Prune && (i == nil || i.ready) {
			steps = append(steps, s)
		}
	}
	return p.remove(ctx, plan.Plan{Steps: steps}.NextWave())
}

// remove deletes objects; that they are gone a later pass sees.
func (p *pass) remove(ctx context.Context, steps []plan.Step) error {
	var errs []error
	for _, s := range steps {
		p.again = true
		errs = append(errs, p.Cluster.Delete(ctx, s))
	}
	return errors.Join(errs...)
}

// planConflict is a fault of reason Conflict that a person has to resolve: another has an
// object of the same name.
type planConflict struct{ error }

func (c planConflict) Unwrap() error { return c.error }

func conflicted(err error) error { return planConflict{err} }

func isPlanned(err error) bool {
	var c planConflict
	return errors.As(err, &c) && fault.ReasonOf(err) == fault.Conflict
}
