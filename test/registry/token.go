package registry

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/distribution/distribution/v3/registry/auth/token"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

const (
	tokenIssuer   = "test token service"
	tokenAudience = "test registry"
	tokenLifetime = 5 * time.Minute
)

// tokenService issues bearer tokens for a username and password, by the distribution project's token specification.
type tokenService struct {
	registry *Registry
	bundle   string // file with the certificate that the registry trusts
	signer   jose.Signer
}

func newTokenService(r *Registry) (*tokenService, error) {
	key := jose.JSONWebKey{Key: r.ca.Key, KeyID: token.GetJWKThumbprint(r.ca.Key.Public())}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return nil, err
	}
	s := &tokenService{registry: r, bundle: filepath.Join(r.scratch, "token.crt"), signer: signer}
	return s, os.WriteFile(s.bundle, r.ca.PEM(), 0o600)
}

// ServeHTTP answers GET /auth/token?service=…&scope=…, and its OAuth2 form: POST with grant_type=refresh_token and
// [Registry.IdentityToken].
func (s *tokenService) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	user, pullOnly, ok := s.login(req)
	if !ok {
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	scopes := req.URL.Query()["scope"]
	if req.Method == http.MethodPost {
		scopes = req.PostForm["scope"]
	}
	if pullOnly {
		for i := range scopes {
			scopes[i] = strings.ReplaceAll(scopes[i], "pull,push", "pull")
		}
	}
	signed, err := s.mint(user, scopes)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "UNKNOWN")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	name := "token"
	if req.Method == http.MethodPost {
		name = "access_token"
	}
	_, _ = fmt.Fprintf(w, `{%q:%q,"expires_in":%d}`, name, signed, int(tokenLifetime.Seconds()))
}

// login returns the user, and whether it may only pull.
func (s *tokenService) login(req *http.Request) (user string, pullOnly, ok bool) {
	r := s.registry
	if req.Method == http.MethodPost {
		err := req.ParseForm()
		ok = err == nil && req.PostForm.Get("grant_type") == "refresh_token" && req.PostForm.Get("refresh_token") == r.IdentityToken()
		return r.Username, r.opts.PullOnly, ok
	}
	if r.opts.AnonymousPull && req.Header.Get("Authorization") == "" {
		return "anonymous", true, true
	}
	user, password, ok := req.BasicAuth()
	return user, r.opts.PullOnly, ok && user == r.Username && password == r.Password
}

// IdentityToken returns the refresh token that stands for the login.
func (r *Registry) IdentityToken() string { return "identity-of-" + r.Password }

// mint signs a token for scopes: "repository:a/b:pull,push".
func (s *tokenService) mint(user string, scopes []string) (string, error) {
	now := time.Now()
	claims := token.ClaimSet{
		Issuer: tokenIssuer, Subject: user, Audience: token.AudienceList{tokenAudience},
		IssuedAt: now.Unix(), NotBefore: now.Add(-time.Minute).Unix(), Expiration: now.Add(tokenLifetime).Unix(),
	}
	for _, scope := range scopes {
		for _, one := range strings.Fields(scope) {
			kind, rest, _ := strings.Cut(one, ":")
			i := strings.LastIndexByte(rest, ':')
			if i < 0 {
				continue
			}
			claims.Access = append(claims.Access, &token.ResourceActions{Type: kind, Name: rest[:i], Actions: strings.Split(rest[i+1:], ",")})
		}
	}
	return jwt.Signed(s.signer).Claims(claims).Serialize()
}
