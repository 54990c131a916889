-- What tokens and logins grant now. A login grants what its token does, for as long as both live.
-- ARGV[1] token, template of its key
-- ARGV[2] login, template of its key
-- ARGV[3..] digest of a token or of a cookie
-- returns for each digest: account, name, scopes, expiresAt or '', the digest of the token, and the milliseconds
--   that the login has left or -1 for a token; false when there is neither

local found = {}
for index = 3, #ARGV do
  local login = ARGV[2]:format(ARGV[index])
  local digest = redis.call('HGET', login, 'token')
  local left = digest and redis.call('PTTL', login) or -1
  digest = digest or ARGV[index]
  local token = redis.call('HMGET', ARGV[1]:format(digest), 'account', 'name', 'scopes', 'expiresAt')
  if token[1] then
    found[index - 2] = {token[1], token[2], token[3], token[4] or '', digest, left}
  else
    found[index - 2] = false
  end
end
return found
