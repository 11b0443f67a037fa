-- AI providers, who may use them, and which of them a function of a tenant takes.

CREATE TABLE ai_providers (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- the name of its secret holds it
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    token       TEXT    NOT NULL UNIQUE,
    name        TEXT,
    description TEXT,
    kind        TEXT    NOT NULL,
    endpoint    TEXT,
    model       TEXT    NOT NULL,
    params      TEXT,
    enabled     INTEGER NOT NULL,
    has_secret  INTEGER NOT NULL
) STRICT;
CREATE INDEX ai_providers_listed ON ai_providers (created_at DESC, token);

CREATE TABLE ai_tier_grants (
    tier_id     INTEGER NOT NULL REFERENCES tenant_tiers (id) ON DELETE CASCADE,
    provider_id INTEGER NOT NULL REFERENCES ai_providers (id),
    is_default  INTEGER NOT NULL, -- of at most one
    PRIMARY KEY (tier_id, provider_id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX ai_tier_grants_default ON ai_tier_grants (tier_id) WHERE is_default = 1;
CREATE INDEX ai_tier_grants_of_provider ON ai_tier_grants (provider_id);

CREATE TABLE ai_tenant_grants (
    tenant_id   INTEGER NOT NULL REFERENCES tenants (id),
    provider_id INTEGER NOT NULL REFERENCES ai_providers (id),
    PRIMARY KEY (tenant_id, provider_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX ai_tenant_grants_of_provider ON ai_tenant_grants (provider_id);

-- One that is not granted counts for nothing: it goes with its provider.
CREATE TABLE ai_function_models (
    tenant_id   INTEGER NOT NULL REFERENCES tenants (id),
    function    TEXT    NOT NULL,
    provider_id INTEGER NOT NULL REFERENCES ai_providers (id) ON DELETE CASCADE,
    PRIMARY KEY (tenant_id, function)
) STRICT, WITHOUT ROWID;
CREATE INDEX ai_function_models_of_provider ON ai_function_models (provider_id);
