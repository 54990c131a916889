-- Writes a login down, if its token is there.
-- KEYS[1] remuda:token:{digest}
-- KEYS[2] remuda:login:{digest}
-- ARGV[1] token digest
-- ARGV[2] seconds for which it is good
-- returns account, name, scopes and expiresAt or '' of the token; false if there is no such token

local token = redis.call('HMGET', KEYS[1], 'account', 'name', 'scopes', 'expiresAt')
if not token[1] then
  return false
end
redis.call('HSET', KEYS[2], 'token', ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return {token[1], token[2], token[3], token[4] or ''}
