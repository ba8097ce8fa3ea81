package remote

import (
	"context"
	"strings"
	"sync"
	"time"

	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote/auth"
)

// tokens is oras' cache, which does not know that tokens expire. One that has is not
// used any more: the request that it is refused for may have a large body.
type tokens struct {
	auth.Cache
	mu     sync.Mutex
	until  map[string]time.Time
	latest map[string]string // what was fetched last, by the host, the scheme and the key
}

// GetToken returns a token that is good for a while.
func (t *tokens) GetToken(ctx context.Context, registry string, scheme auth.Scheme, key string) (string, error) {
	token, err := t.Cache.GetToken(ctx, registry, scheme, key)
	if err != nil || scheme != auth.SchemeBearer {
		return token, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !time.Now().Before(t.until[token]) {
		return "", errdef.ErrNotFound
	}
	return token, nil
}

// Set fetches a token once for all who wait for it. Who gives up has the next one fetch
// it, which oras does where the error is this very one. Who looked before there was a
// token, and comes here when there is one, is given it: oras would fetch another.
func (t *tokens) Set(ctx context.Context, registry string, scheme auth.Scheme, key string, fetch func(context.Context) (string, error)) (string, error) {
	name := strings.Join([]string{registry, scheme.String(), key}, " ")
	return t.Cache.Set(ctx, registry, scheme, key, func(ctx context.Context) (string, error) {
		if token := t.fetched(name); token != "" {
			return token, nil
		}
		token, err := fetch(ctx)
		if err != nil && ctx.Err() != nil {
			return "", context.Canceled
		}
		if err == nil {
			t.mu.Lock()
			t.latest[name] = token
			t.mu.Unlock()
		}
		return token, err
	})
}

// fetched returns the token that was fetched last, while it is good; else nothing. What
// is not a token of a service (Basic) is never noted as good, and made anew.
func (t *tokens) fetched(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	token := t.latest[name]
	if !time.Now().Before(t.until[token]) {
		delete(t.latest, name)
		return ""
	}
	return token
}

func (t *tokens) good(token string, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for old, end := range t.until {
		if !time.Now().Before(end) {
			delete(t.until, old)
		}
	}
	t.until[token] = until
}

func (t *tokens) forget(token string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.until, token)
}
