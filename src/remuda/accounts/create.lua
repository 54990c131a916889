-- Registers a token, and with it its account if there is none.
-- KEYS[1] remuda:token:{digest}
-- KEYS[2] remuda:tokens:{account}
-- KEYS[3] remuda:accounts
-- KEYS[4] remuda:account:{account}
-- KEYS[5] remuda:admins
-- KEYS[6] remuda:expiries
-- KEYS[7] remuda:access
-- ARGV[1] digest
-- ARGV[2] name
-- ARGV[3] account
-- ARGV[4] scopes, separated by spaces
-- ARGV[5] now, RFC 3339
-- ARGV[6] expires, RFC 3339, or '' for never
-- ARGV[7] expiry, the same in Unix seconds, or 0
-- ARGV[8] admin, 1 if it is a token of the scope admin
-- ARGV[9] first, 1 if it is only wanted as long as the herd has no admin token that lasts
-- ARGV[10] bell to ring
-- returns 1; 0 if the account has a token of this name; -1 if it is not wanted

if ARGV[9] == '1' and redis.call('SCARD', KEYS[5]) > 0 then
  return -1
end
if redis.call('HSETNX', KEYS[2], ARGV[2], ARGV[1]) == 0 then
  return 0
end
redis.call('HSET', KEYS[1], 'name', ARGV[2], 'account', ARGV[3], 'scopes', ARGV[4], 'createdAt', ARGV[5])
if ARGV[6] ~= '' then
  redis.call('HSET', KEYS[1], 'expiresAt', ARGV[6])
  redis.call('ZADD', KEYS[6], ARGV[7], ARGV[1])
elseif ARGV[8] == '1' then
  redis.call('SADD', KEYS[5], ARGV[1])
end
redis.call('SADD', KEYS[3], ARGV[3])
redis.call('HSETNX', KEYS[4], 'createdAt', ARGV[5])
redis.call('INCR', KEYS[7])
redis.call('PUBLISH', ARGV[10], '')
return 1
