-- Revokes a token.
-- KEYS[1] remuda:token:{digest}
-- KEYS[2] remuda:tokens:{account}
-- KEYS[3] remuda:admins
-- KEYS[4] remuda:expiries
-- KEYS[5] remuda:access
-- ARGV[1] digest
-- ARGV[2] name
-- ARGV[3] keep, 1 if the last admin token is not to be revoked
-- ARGV[4] bell to ring
-- returns 1; 0 if this name is not, or no longer, that of this token; -1 if it is the last admin token

if redis.call('HGET', KEYS[2], ARGV[2]) ~= ARGV[1] then
  return 0
end
if ARGV[3] == '1' and redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 1 and redis.call('SCARD', KEYS[3]) == 1 then
  return -1
end
redis.call('DEL', KEYS[1])
redis.call('HDEL', KEYS[2], ARGV[2])
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
redis.call('INCR', KEYS[5])
redis.call('PUBLISH', ARGV[4], '')
return 1
