package registry

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/token" // the login "token"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/filesystem" // the storage "filesystem"
	"github.com/sirupsen/logrus"
)

// silence turns off the registry's log, which goes only to logrus' global logger.
var silence = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) })

// newDistribution returns the reference registry, ready to serve.
func (r *Registry) newDistribution() (h http.Handler, err error) {
	silence()
	config, err := r.configuration()
	if err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil { // its constructor panics on invalid settings
			err = fmt.Errorf("start distribution: %v", p)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	app := handlers.NewApp(ctx, config)
	r.close = append(r.close, func() { _ = app.Shutdown(); cancel() })
	if r.tokens == nil {
		return app, nil
	}
	mux := http.NewServeMux()
	mux.Handle("/auth/token", r.tokens)
	mux.Handle("/", app)
	return mux, nil
}

func (r *Registry) configuration() (*configuration.Configuration, error) {
	secret := make([]byte, 16)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	c := &configuration.Configuration{Storage: configuration.Storage{
		memory:        nil,
		"delete":      {"enabled": true},
		"redirect":    {"disable": true},
		"maintenance": {"uploadpurging": map[any]any{"enabled": false}, "readonly": map[any]any{"enabled": r.opts.ReadOnly}},
	}}
	if r.opts.Dir != "" {
		delete(c.Storage, memory)
		c.Storage["filesystem"] = configuration.Parameters{"rootdirectory": r.opts.Dir}
	}
	c.HTTP.Secret = hex.EncodeToString(secret)
	c.HTTP.RelativeURLs = r.opts.RelativeURLs
	if r.opts.Auth != Token {
		return c, nil
	}
	tokens, err := newTokenService(r)
	if err != nil {
		return nil, err
	}
	r.tokens = tokens
	c.Auth = configuration.Auth{"token": {
		"realm": r.URL() + "/auth/token", "service": tokenAudience, "issuer": tokenIssuer, "rootcertbundle": tokens.bundle,
	}}
	return c, nil
}
