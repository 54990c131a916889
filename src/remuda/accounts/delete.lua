-- Deletes an account with its tokens.
-- KEYS[1] remuda:account:{account}
-- KEYS[2] remuda:tokens:{account}
-- KEYS[3] remuda:accounts
-- KEYS[4] remuda:admins
-- KEYS[5] remuda:expiries
-- KEYS[6] remuda:access
-- KEYS[7] remuda:quotas:{account}
-- KEYS[8] remuda:quota.use:{account}
-- ARGV[1] account
-- ARGV[2] token, template of its key
-- ARGV[3] keep, 1 if the last admin tokens are not to be revoked
-- ARGV[4] bell to ring
-- returns the names of its tokens; 0 if there is no such account; -1 if no other has an admin token

if redis.call('SISMEMBER', KEYS[3], ARGV[1]) == 0 then
  return 0
end
local tokens = redis.call('HGETALL', KEYS[2])
local names, admins = {}, 0
for index = 1, #tokens, 2 do
  names[#names + 1] = tokens[index]
  admins = admins + redis.call('SISMEMBER', KEYS[4], tokens[index + 1])
end
if ARGV[3] == '1' and admins > 0 and admins == redis.call('SCARD', KEYS[4]) then
  return -1
end
for index = 2, #tokens, 2 do
  redis.call('DEL', ARGV[2]:format(tokens[index]))
  redis.call('SREM', KEYS[4], tokens[index])
  redis.call('ZREM', KEYS[5], tokens[index])
end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[7], KEYS[8])
redis.call('SREM', KEYS[3], ARGV[1])
redis.call('INCR', KEYS[6])
redis.call('PUBLISH', ARGV[4], '')
return names
