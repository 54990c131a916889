-- Notes when tokens were last used, for those that are still there. The use of a login is one of its token.
-- ARGV[1] token, template of its key
-- ARGV[2] login, template of its key
-- ARGV[3] now, RFC 3339
-- ARGV[4..] digest of a token or of a cookie
-- returns nothing

for index = 4, #ARGV do
  local digest = redis.call('HGET', ARGV[2]:format(ARGV[index]), 'token') or ARGV[index]
  local token = ARGV[1]:format(digest)
  if redis.call('EXISTS', token) == 1 then
    redis.call('HSET', token, 'usedAt', ARGV[3])
  end
end
