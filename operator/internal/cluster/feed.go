package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// feedPage is how many objects are there at once as they come, before they are trimmed.
const feedPage = 100

const (
	// firstLook is what a feed has to see everything once; then the API server is asked.
	firstLook = 20 * time.Second
	// nextLook is likewise what it has to watch again where a watch ended, as they do after
	// some minutes.
	nextLook = 3 * time.Second
)

// feed is a watch of objects of one kind, which keeps them as [trimmed] leaves them.
// Where it cannot see what there is now, it says so.
type feed struct {
	client   client.WithWatch
	example  client.Object
	empty    func() client.ObjectList
	within   client.ListOptions // namespace and selector
	informer toolscache.SharedIndexInformer
	stop     context.CancelFunc

	mu      sync.Mutex
	err     error           // of the last question
	open    watch.Interface // nil where nothing is watched
	changed chan struct{}   // closed when those change
}

// newFeed makes a feed that does not run yet.
func newFeed(c client.WithWatch, example client.Object, empty func() client.ObjectList, within client.ListOptions) *feed {
	f := &feed{client: c, example: example, empty: empty, within: within, changed: make(chan struct{})}
	f.informer = toolscache.NewSharedIndexInformer(
		toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{ListWithContextFunc: f.list, WatchFuncWithContext: f.watch}, c),
		example, 0, toolscache.Indexers{})
	return f
}

// run runs it until ctx is over.
func (f *feed) run(ctx context.Context) {
	ctx, f.stop = context.WithCancel(ctx)
	go f.informer.RunWithContext(ctx)
}

// list lists page by page, and trims each page before it asks for the next one: an API
// server that was asked for what its cache has would send all of it at once.
func (f *feed) list(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
	raw.ResourceVersion, raw.ResourceVersionMatch = "", ""
	all, opts := f.empty(), f.within
	opts.Raw, opts.Limit = &raw, feedPage
	var kept []runtime.Object
	for {
		page := f.empty()
		if err := f.client.List(ctx, page, &opts); err != nil {
			return nil, f.note(err)
		}
		if err := meta.EachListItem(page, func(o runtime.Object) error { kept = append(kept, trimmed(o)); return nil }); err != nil {
			return nil, f.note(err)
		}
		all.SetResourceVersion(page.GetResourceVersion())
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return all, f.note(meta.SetList(all, kept))
		}
	}
}

// watch trims events as they come. A bookmark has no object that is kept.
func (f *feed) watch(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
	opts := f.within
	opts.Raw = &raw
	from, err := f.client.Watch(ctx, f.empty(), &opts)
	if f.note(err) != nil {
		return nil, err
	}
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	f.watching(from, true)
	go func() {
		defer close(events)
		defer f.watching(from, false)
		defer from.Stop()
		f.pass(from, to, events)
	}()
	return to, nil
}

// pass hands events on until either side ends.
func (f *feed) pass(from watch.Interface, to *watch.ProxyWatcher, events chan<- watch.Event) {
	for {
		select {
		case <-to.StopChan():
			return
		case e, more := <-from.ResultChan():
			if !more {
				return
			}
			if e.Type == watch.Added || e.Type == watch.Modified || e.Type == watch.Deleted {
				e.Object = trimmed(e.Object)
			}
			select {
			case events <- e:
			case <-to.StopChan():
				return
			}
		}
	}
}

// watching notes that a watch has begun, or ended.
func (f *feed) watching(w watch.Interface, begun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case begun:
		f.open = w
	case f.open == w:
		f.open = nil
	}
	f.tell()
}

// note keeps what came of the last question to the API server, and returns it.
func (f *feed) note(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	f.tell()
	return err
}

func (f *feed) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// state says whether what is kept is what there is, or why it is not, and what is waited
// on for another answer.
func (f *feed) state() (open bool, changed <-chan struct{}, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open != nil, f.changed, f.err
}

var errBlind = errors.New("what is watched cannot be seen now")

// see waits until everything was seen and is watched, and fails where that cannot be:
// then what is kept may be older than the API server's last word, and who asks has to list.
func (f *feed) see(ctx context.Context) error {
	most := firstLook
	if f.informer.HasSynced() {
		most = nextLook
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for {
		open, changed, err := f.state()
		switch {
		case err != nil:
			return errBlind
		case open && f.informer.HasSynced():
			return nil
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // of having synced nobody tells
		case <-ctx.Done():
			return errBlind
		}
	}
}

func within(namespace string, selector labels.Selector) client.ListOptions {
	return client.ListOptions{Namespace: namespace, LabelSelector: selector}
}
