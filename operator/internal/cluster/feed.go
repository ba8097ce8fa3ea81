package cluster

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmware-tanzu/vsphere-kubernetes-drivers-operator/operator/internal/pages"
)

const (
	// firstLook is how long a feed may bring nothing before it has seen everything once; then
	// the API server is asked.
	firstLook = 20 * time.Second
	// nextLook is likewise where everything comes once more, since a watch could not go on
	// where it ended, and where a second watch tells: longer than that one takes.
	nextLook = 5 * time.Second
	// listAge is how old a list may be that is shown since a watch goes on from it.
	listAge = 3 * time.Second
	// longestLook is what everything may take as long as it comes: who asked a slow API server
	// beside it would have it take twice as long, and keep everything twice.
	longestLook = time.Minute
)

// feed is a watch of objects of one kind, which keeps them as [trimmed] leaves them.
// Where it cannot see what there is now, it says so.
//
// A watch ends after some minutes, and what is kept is then as old as its end. The next one
// brings what came in between, and nothing says when that was all, but the next bookmark:
// the API server sends one each minute, or, where the watch begins with everything there
// is, at the end of that. Until what is kept is as new as the first bookmark of the watch
// that is open, it is not shown; nor is anything between two watches. What was just listed
// is shown at once: who asks would list the same. Rather than to wait a minute for the bookmark,
// a second watch that goes on from the same state is asked for, of a few seconds: a bookmark
// comes before its end, and what it brings until then is what the first one has to bring. Where
// there is nothing newer it ends without a word, and then there was nothing to bring.
type feed struct {
	client   client.WithWatch
	example  client.Object
	empty    func() client.ObjectList
	within   client.ListOptions // namespace and selector
	informer toolscache.SharedIndexInformer
	stop     context.CancelFunc

	brought atomic.Int64 // when something came last, in nanoseconds since 1970

	mu      sync.Mutex
	err     error         // of the last question
	open    *opening      // nil where nothing is watched
	listed  listed        // what the next watch may go on from
	changed chan struct{} // closed when those change
}

// listed is a list: its resource version, when it was begun and when all of it had come, and the
// resource version of what was kept before.
type listed struct {
	version      string
	begun, ended time.Time
	before       string
}

// opening is a watch from its begin to its end.
type opening struct {
	whole  bool   // it begins with everything there is
	mark   string // resource version of its first bookmark, of the list it goes on from, or of what a second watch brought last; "" before
	before string // the resource version of what was kept when that came
	caught bool   // what is kept is as new as that
	asked  bool   // a second watch is open
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
	is := listed{begun: time.Now(), before: f.kept()}
	// Items of a list of raw objects are kept as they are; of a list of their kind each would
	// be copied once more.
	all, opts := &metav1.List{}, f.within
	opts.Raw, opts.Limit = &raw, pages.PerNode
	for {
		page := f.empty()
		if err := f.client.List(ctx, page, &opts); err != nil {
			return nil, f.note(err)
		}
		f.came()
		if err := meta.EachListItem(page, func(o runtime.Object) error {
			all.Items = append(all.Items, runtime.RawExtension{Object: trimmed(o)})
			return nil
		}); err != nil {
			return nil, f.note(err)
		}
		all.SetResourceVersion(page.GetResourceVersion())
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			is.version, is.ended = all.GetResourceVersion(), time.Now()
			f.mu.Lock()
			f.listed = is
			f.mu.Unlock()
			return all, f.note(nil)
		}
	}
}

// watch trims events as they come. A bookmark has no object that is kept.
func (f *feed) watch(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
	opts := f.within
	opts.Raw = &raw
	from, err := f.client.Watch(ctx, f.empty(), &opts)
	if raw.SendInitialEvents != nil && apierrors.IsInvalid(err) {
		return nil, err // of an API server that cannot: all of it is listed now
	}
	if f.note(err) != nil {
		return nil, err
	}
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	o := f.opening(raw)
	f.watching(o, true)
	if o.asked {
		go f.second(ctx, o, raw.ResourceVersion)
	}
	go func() {
		defer close(events)
		defer f.watching(o, false)
		defer from.Stop()
		f.pass(o, from, to, events)
	}()
	return to, nil
}

// opening is the watch that was opened by such options.
func (f *feed) opening(raw metav1.ListOptions) *opening {
	if raw.SendInitialEvents != nil && *raw.SendInitialEvents {
		return &opening{whole: true}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.listed
	if raw.ResourceVersion != "" && l.version == raw.ResourceVersion && time.Since(l.begun) < listAge {
		return &opening{mark: l.version, before: l.before}
	}
	return &opening{asked: raw.ResourceVersion != ""}
}

// secondWatch is how long a second watch is asked for, in seconds: an API server sends a
// bookmark two seconds before the end.
const secondWatch = 3

// second asks for what came since a resource version, beside a watch that goes on from there,
// and marks how far that has to come.
func (f *feed) second(ctx context.Context, o *opening, since string) {
	last, all := f.broughtSince(ctx, since)
	f.mu.Lock()
	defer f.mu.Unlock()
	if all && o.mark == "" {
		o.mark, o.before = last, last
	}
	o.asked = false
	f.tell()
}

// broughtSince returns the resource version of what a watch of a few seconds brought last, and
// whether that was all: a bookmark says so, or the API server lets its time pass without a word
// and is not behind. An end before is that of a connection.
func (f *feed) broughtSince(ctx context.Context, since string) (last string, all bool) {
	last, opts := since, f.within
	begun := time.Now()
	opts.Raw = &metav1.ListOptions{ResourceVersion: since, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To[int64](secondWatch)}
	short, cancel := context.WithTimeout(ctx, 3*secondWatch*time.Second)
	defer cancel()
	w, err := f.client.Watch(short, f.empty(), &opts)
	if err != nil {
		return "", false
	}
	answered := time.Now()           // a while after the API server, which counts from there
	context.AfterFunc(short, w.Stop) // which ends what it brings
	for e := range w.ResultChan() {
		m, err := meta.Accessor(e.Object)
		if err != nil || e.Type == watch.Error {
			return "", false
		}
		if e.Type == watch.Bookmark {
			return last, !older(m.GetResourceVersion(), last)
		}
		last = m.GetResourceVersion()
	}
	silent := last == since && short.Err() == nil && time.Since(begun) >= secondWatch*time.Second && time.Since(answered) >= (secondWatch-1)*time.Second
	return last, silent && f.reached(ctx, since)
}

// reached tells whether the API server's state is as new as a resource version. One whose etcd
// was put back to a backup says nothing of what is older, which looks like nothing new.
func (f *feed) reached(ctx context.Context, version string) bool {
	one, opts := f.empty(), f.within
	opts.Limit = 1
	return f.client.List(ctx, one, &opts) == nil && !older(one.GetResourceVersion(), version)
}

// pass hands events on until either side ends.
func (f *feed) pass(o *opening, from watch.Interface, to *watch.ProxyWatcher, events chan<- watch.Event) {
	for {
		select {
		case <-to.StopChan():
			return
		case e, more := <-from.ResultChan():
			if !more {
				return
			}
			f.came()
			switch e.Type {
			case watch.Added, watch.Modified, watch.Deleted:
				e.Object = trimmed(e.Object)
			case watch.Bookmark:
				f.mark(o, e.Object)
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
func (f *feed) watching(o *opening, begun bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case begun:
		f.open = o
		f.listed = listed{} // one watch goes on from it: after another's end it is old
	case f.open == o:
		f.open = nil
	}
	f.tell()
}

// mark notes the first bookmark of a watch: of one that begins with everything there is,
// the one at the end of that.
func (f *feed) mark(o *opening, bookmark runtime.Object) {
	m, err := meta.Accessor(bookmark)
	if err != nil || (o.whole && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true") {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.mark == "" {
		o.mark, o.before = m.GetResourceVersion(), f.kept()
		f.tell()
	}
}

// kept is the resource version of what is kept.
func (f *feed) kept() string { return f.informer.GetStore().LastStoreSyncResourceVersion() }

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

// sight is what a feed can show.
type sight int

const (
	sees  sight = iota // what is kept is what there is
	soon               // everything there is comes now
	blind              // what is kept may be older than what there is, for a while
)

// state says what can be shown, and what is waited on for another answer.
func (f *feed) state() (sight, <-chan struct{}) {
	synced := f.informer.HasSynced()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.err != nil:
		return blind, f.changed
	case !synced:
		return soon, f.changed
	case f.open == nil && time.Since(f.listed.ended) < nextLook:
		return soon, f.changed
	case f.open == nil:
		return blind, f.changed
	case f.open.reached(f.kept()):
		return sees, f.changed
	case f.open.whole || f.open.mark != "" || f.open.asked:
		return soon, f.changed
	}
	return blind, f.changed
}

// reached tells whether what is kept is as new as the first bookmark, or has been. Only of
// an API server that was put back to an earlier state is what was kept before newer.
func (o *opening) reached(kept string) bool {
	o.caught = o.caught || (o.mark != "" && !older(kept, o.mark) && (!older(o.mark, o.before) || older(kept, o.before)))
	return o.caught
}

// older tells whether a resource version is, or whether that is not known.
func older(a, than string) bool {
	is, err := resourceversion.CompareResourceVersion(a, than)
	return err != nil || is < 0
}

var errBlind = errors.New("what is watched cannot be seen now")

// came notes that something came.
func (f *feed) came() { f.brought.Store(time.Now().UnixNano()) }

// see waits while everything comes, and fails where what is kept may be older than the API
// server's last word: then who asks has to list.
func (f *feed) see(ctx context.Context) error {
	most := firstLook
	if f.informer.HasSynced() {
		most = nextLook
	}
	ctx, cancel := context.WithTimeout(ctx, longestLook)
	defer cancel()
	for begun := time.Now(); time.Since(begun) < most || time.Since(time.Unix(0, f.brought.Load())) < most; {
		can, changed := f.state()
		switch can {
		case sees:
			return nil
		case blind:
			return errBlind
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond): // of what is kept nobody tells
		case <-ctx.Done():
			return errBlind
		}
	}
	return errBlind
}

func within(namespace string, selector labels.Selector) client.ListOptions {
	return client.ListOptions{Namespace: namespace, LabelSelector: selector}
}
